// The state space models of Mamba-2 layers (operands: plan/state_space_ops.h; the gradient of the decay:
// runtime/cpu/state_space.h), token by token in fp32.
//
// The convolution (causal_convolution.h), the gate and the norm are kernels of their own around the scans
// (state_space_scan.h). Blocks write partial sums of the parameters' gradients, which kernels/partials.h adds
// up.
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/convolution_limit.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

// What the kernels have room for.
inline constexpr int64_t kMostState = 256;

void Run(Queue& queue, const StateSpaceForward& op, const Operands& operands);
void Run(Queue& queue, const StateSpaceBackward& op, const Operands& operands);
int64_t ScratchBytes(const StateSpaceForward& op, const Traits& traits);
int64_t ScratchBytes(const StateSpaceBackward& op, const Traits& traits);
// Of one block of the scans, and of the norm's backward.
int64_t StateSpaceSharedBytes(const StateSpaceForward& op);
int64_t StateSpaceSharedBytes(const StateSpaceBackward& op);

}  // namespace windtunnel::WT_KERNELS
