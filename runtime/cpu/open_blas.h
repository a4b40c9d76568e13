// OpenBLAS, opened when something is first computed: as soon as it is there, workers of its own spin for 0.1 s, on cores that a prediction or
// a search has other work for. (Where OPENBLAS_NUM_THREADS is 1 by then, as in main and in the ranks that it launches, there are none.)
// The one with threads (Debian's libopenblas0-pthread): libopenblas0-serial is not safe to call from several threads at once, as
// DataParallel's devices do.
#pragma once

#include "base/result.h"

namespace windtunnel::cpu {

// Its functions, which are those of C's interface to BLAS.
struct OpenBlas {
  using Sgemm = void(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                     const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
  Sgemm* sgemm = nullptr;
  void (*set_threads)(int threads) = nullptr;  // of the process
  char* (*config)() = nullptr;                 // version and options of the build
  char* (*core_name)() = nullptr;              // whose kernels it has chosen

  // From any thread. Failed: says why it cannot be opened.
  static const Result<OpenBlas>& Get();
};

}  // namespace windtunnel::cpu
