// RMS norms of queries and keys in packed projections (operands: plan/attention_ops.h; the formula:
// runtime/cpu/head_norm.h).
//
// Where each head is normalised by itself, a warp processes one head of one token at a time. In backward, each
// warp sums its heads' weight gradients in its own part of shared memory, each block sums those of its warps,
// and a second kernel those of the blocks (kernels/partials.h). Where all heads are normalised together, a
// block processes one token at a time, and each thread sums the gradients of its own elements.
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const HeadNormForward& op, const Operands& operands);
void Run(Queue& queue, const HeadNormBackward& op, const Operands& operands);
int64_t ScratchBytes(const HeadNormBackward& op, const Traits& traits);
// Of one block, where all heads are normalised together.
int64_t WholeNormSharedBytes(const HeadNormBackward& op);

}  // namespace windtunnel::WT_KERNELS
