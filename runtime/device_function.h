// WT_FUNCTION: functions that the kernels of every device share, inlined into each.
#pragma once

#if defined(__CUDACC__)
#define WT_FUNCTION __device__ __forceinline__
#else
#define WT_FUNCTION inline __attribute__((always_inline))
#endif
