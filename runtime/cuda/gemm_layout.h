// A row-major product as cuBLASLt, whose matrices are column-major, is to be asked for it. A row-major [r,c] matrix is a column-major
// [c,r] one as it lies, so C = op(A) op(B) is computed as C' = op(B)' op(A)': the factors change places, nothing is moved.
//
//   Gemm{m 4, n 3, k 2}: of "a", our B, column-major [3,2] with leading dimension 3; of "b", our A, [2,4] with 2; into [3,4] with 3.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "plan/op.h"

namespace windtunnel::cuda {

struct MatrixLayout {
  int64_t rows = 0, columns = 0, leading = 0;  // column-major, as it lies in memory
  bool transpose = false;                      // whether the product takes it transposed
  int64_t stride = 0;                          // elements from one matrix of a batch to the next
  auto operator<=>(const MatrixLayout&) const = default;
};

// What is done to the product before it is stored.
enum class Epilogue : uint8_t { kNone, kBias };

struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;  // of cuBLASLt's product: m x n, over k
  MatrixLayout a, b, c;         // `a` is the operator's B, `b` its A
  int64_t batch = 1;
  Epilogue epilogue = Epilogue::kNone;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
  auto operator<=>(const GemmProblem&) const = default;
};

// GELU is no epilogue of ours although cuBLASLt has one: it computes the tanh form, the program's is the erf form
// (plan/op.h), whose backward also needs what goes into it.
GemmProblem ProblemOf(const Gemm& op);
GemmProblem ProblemOf(const GroupedGemm& op);

// Bytes of alignment that an address has, at most 256 (what heuristics ask for).
uint32_t AlignmentOf(const void* address);

}  // namespace windtunnel::cuda
