// Rotary positions in place, rotating halves as Llama does (operands: plan/ops.h; the formula:
// runtime/cpu/rope.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

inline constexpr int64_t kMostRopeHeadDim = 256;

// REQUIRES: the number of rotated columns is even and at most kMostRopeHeadDim.
void Run(Queue& queue, const Rope& op, const KernelContext& context, const Operands& operands);

}  // namespace windtunnel::WT_KERNELS
