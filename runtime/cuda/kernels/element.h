// The element types of kernels, as they lie in memory. Arithmetic is always fp32.
#pragma once

#include <cstdint>

#if defined(WT_EMULATED)
#undef WT_KERNELS
#define WT_KERNELS cuda_emulated
#else
#undef WT_KERNELS
#define WT_KERNELS cuda
#endif

namespace windtunnel::WT_KERNELS {

// The upper half of an fp32, and IEEE 754's binary16.
enum class BFloat16 : uint16_t {};
enum class Float16 : uint16_t {};

}  // namespace windtunnel::WT_KERNELS
