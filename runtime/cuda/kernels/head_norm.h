// RMS norm of each head of queries and of keys in packed projections (operands: plan/ops.h; the formula: runtime/cpu/head_norm.h).
//
// A warp processes one head of one token at a time. In backward, each warp sums its heads' weight gradients
// in its own part of shared memory, each block sums those of its warps, and a second kernel those of the
// blocks (kernels/partials.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const HeadNormForward& op, const Operands& operands);
void Run(Queue& queue, const HeadNormBackward& op, const Operands& operands);
int64_t ScratchBytes(const HeadNormBackward& op, const Traits& traits);

}  // namespace windtunnel::WT_KERNELS
