// GEMMs by oneDNN and OpenBLAS, whichever measured faster for the class of shape (README.md has the table).
//
//   GemmEngine gemms;
//   GemmProblem product = GemmProblem::Dense(m, n, k, /*transpose_a=*/false, /*transpose_b=*/true);
//   WT_RETURN_IF_ERROR(gemms.Run(product, a, b, /*bias=*/nullptr, c));
//
// The choice depends only on the problem and the processor's instruction set, never on a measurement made
// while running: the same run gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "plan/dtype.h"
#include "runtime/cpu/element.h"

namespace windtunnel::cpu {

// C[m,n] = alpha op(A)[m,k] op(B)[k,n] (+ bias[n] on every row) (+ beta C if accumulate), row-major. `lda` is
// the stride of A's stored rows in elements (rows have length k, or m if transposed); likewise ldb and ldc.
// Operands may be parts of wider matrices.
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool bias = false;
  bool accumulate = false;
  DType dtype = DType::kFloat32;  // of all operands: fp32 or bf16
  float alpha = 1, beta = 1;      // REQUIRES: 1 with a bias

  // A problem whose matrices are stored without gaps.
  static GemmProblem Dense(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b) {
    return {m, n, k, transpose_a, transpose_b, transpose_a ? m : k, transpose_b ? k : n, n};
  }
  bool operator==(const GemmProblem&) const = default;
};

enum class GemmLibrary {
  kOneDnnMatmul,  // oneDNN's matmul primitive: code generated per shape, the bias fused
  kOneDnnSgemm,   // oneDNN's BLAS call
  kOpenBlas,
};
std::string_view Name(GemmLibrary library);

// Not thread-safe: holds the primitives made so far and one scratchpad, which fits the largest of them.
class GemmEngine {
 public:
  GemmEngine();
  ~GemmEngine();

  // REQUIRES: positive m, n and k; C does not overlap A, B or bias; bias is read only when the problem has
  // one. Errors: Failed (the library refused; the message has its reason and the shape).
  Status Run(const GemmProblem& problem, const float* a, const float* b, const float* bias, float* c);
  // The same in bf16: sums in fp32, C rounded once. REQUIRES: MultipliesBFloat16(), and problem.dtype is
  // bf16.
  Status Run(const GemmProblem& problem, const BFloat16* a, const BFloat16* b, const BFloat16* bias,
             BFloat16* c);
  // Whether oneDNN generates code for bf16 here (AVX-512 BF16).
  bool MultipliesBFloat16() const;
  // Runs in fp32 with the given library, for measurements and tests.
  Status RunWith(GemmLibrary library, const GemmProblem& problem, const float* a, const float* b,
                 const float* bias, float* c);
  // The library that Run uses for `problem`.
  GemmLibrary Choose(const GemmProblem& problem) const;

 private:
  struct Prepared;
  struct State;
  Result<Prepared*> Prepare(const GemmProblem& problem);
  Status RunMatmul(const GemmProblem& problem, const void* a, const void* b, const void* bias, void* c);

  std::unique_ptr<State> state_;
};

// Keeps oneDNN's work in the calling thread. OpenMP holds this setting per thread, so it is set again
// wherever a call may come from a new one. (OpenBLAS's setting belongs to the process; a GemmEngine makes
// it.)
void UseOneThread();

std::string OneDnnVersion();
std::string OpenBlasVersion();  // with the build's options and the kernels chosen for this processor

}  // namespace windtunnel::cpu
