// Compiles a kernel file for several instruction sets: every function marked WT_CPU_KERNEL exists for
// AVX-512, AVX2 and the baseline, and the dynamic linker picks one of them (an "ifunc") when the program
// starts. Kernel files are compiled with KERNEL_COPTS (runtime/cpu/kernel.bzl), so that plain loops
// vectorise.
//
//   namespace {
//   WT_INLINE float Square(float x) { return x * x; }             // inlined into every version of its caller
//   WT_CPU_KERNEL void Squares(int64_t n, const float* in, float* out) {
//   #pragma omp simd                                              // in and out do not overlap, or are the same
//     for (int64_t i = 0; i < n; ++i) out[i] = Square(in[i]);
//   }
//   }
#pragma once

// An ifunc's resolver runs before a sanitizer's runtime is up, and sanitizers instrument resolvers too.
// Builds with sanitizers therefore get the baseline only.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WT_CPU_KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WT_CPU_KERNEL
#endif

#define WT_INLINE inline __attribute__((always_inline))
