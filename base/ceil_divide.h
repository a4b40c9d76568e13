// Division of whole numbers that rounds up: how many parts of one size hold all.
#pragma once

#include <cstdint>

namespace windtunnel {

// REQUIRES: the dividend is not negative, and the divisor is positive.
constexpr int64_t CeilDivide(int64_t dividend, int64_t divisor) { return (dividend + divisor - 1) / divisor; }

}  // namespace windtunnel
