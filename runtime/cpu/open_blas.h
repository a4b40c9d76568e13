// OpenBLAS, opened only when something is first computed: as soon as it is loaded, its worker threads spin
// for 0.1 s on cores that a prediction or a search needs. (It starts no threads if OPENBLAS_NUM_THREADS is 1
// by then, as in main and in the ranks that it launches.) The variant with threads is opened (Debian's
// libopenblas0-pthread), since libopenblas0-serial is not safe to call from several threads at once, as
// DataParallel's devices do.
#pragma once

#include "base/result.h"

namespace windtunnel::cpu {

// Its functions, those of C's interface to BLAS and OpenBLAS's own.
struct OpenBlas {
  using Sgemm = void(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                     const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
  Sgemm* sgemm = nullptr;
  void (*set_threads)(int threads) = nullptr;  // for the process
  char* (*config)() = nullptr;                 // version and build options
  char* (*core_name)() = nullptr;              // the processor whose kernels it uses

  // May be called from any thread. Failed: says why OpenBLAS cannot be opened.
  static const Result<OpenBlas>& Get();
};

}  // namespace windtunnel::cpu
