// RMS norm of each head of queries and of keys in packed projections (operands: plan/op.h; the formula: runtime/cpu/head_norm.h).
//
// A warp has a head of a token at a time. Going backward, each adds up the weights' gradients of its heads in a place of its own in
// shared memory, blocks add up their warps', and a second kernel the blocks' (kernels/partials.h).
#pragma once

#include "plan/op.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const HeadNormForward& op, const Operands& operands);
void Run(Queue& queue, const HeadNormBackward& op, const Operands& operands);
int64_t ScratchBytes(const HeadNormBackward& op, const Traits& traits);

}  // namespace windtunnel::WT_KERNELS
