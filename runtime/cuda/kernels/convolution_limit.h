#pragma once

#include <cstdint>

namespace windtunnel {

// The most tokens that a causal convolution sees for which the kernels have room (causal_convolution.h).
inline constexpr int64_t kMostConvolution = 4;

}  // namespace windtunnel
