// Translates a row-major GEMM for cuBLASLt, whose matrices are column-major. A row-major [r,c] matrix is,
// without being moved, a column-major [c,r] matrix. C = op(A) op(B) is therefore computed as C' = op(B)'
// op(A)': the factors change places.
//
// Gemm{m 4, n 3, k 2}: "a" is the operator's B, column-major [3,2] with leading dimension 3; "b" is its A,
// [2,4] with leading dimension 2; the result is [3,4] with leading dimension 3.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "plan/dtype.h"
#include "plan/ops.h"

namespace windtunnel::cuda {

struct MatrixLayout {
  int64_t rows = 0, columns = 0, leading = 0;  // column-major, as it lies in memory
  bool transpose = false;                      // whether the GEMM uses it transposed
  int64_t stride = 0;                          // elements from one matrix of a batch to the next
  auto operator<=>(const MatrixLayout&) const = default;
};

// The operation on the product before it is stored.
enum class Epilogue : uint8_t { kNone, kBias };

struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;  // of cuBLASLt's GEMM: m x n, over k
  MatrixLayout a, b, c;         // `a` is the operator's B, `b` its A
  int64_t batch = 1;
  Epilogue epilogue = Epilogue::kNone;
  bool accumulate = false;
  DType dtype = DType::kFloat32;
  float alpha = 1, beta = 1;  // as a Gemm's
  auto operator<=>(const GemmProblem&) const = default;
};

// GELU is not an epilogue here although cuBLASLt has one: cuBLASLt computes the tanh form, this project the
// erf form (plan/ops.h), whose backward also needs its input.
GemmProblem ProblemOf(const Gemm& op);
GemmProblem ProblemOf(const GroupedGemm& op);

// The address's alignment in bytes, at most 256 (which is what the heuristic asks for).
uint32_t AlignmentOf(const void* address);

}  // namespace windtunnel::cuda
