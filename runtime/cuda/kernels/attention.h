// Attention with grouped keys and values: flash (this project's kernels, on tensor cores for 16-bit
// types, without them for fp32), eager, and that of context-parallel ranks (operands: plan/ops.h). Each
// gradient is summed in a fixed order by one block, so runs are bitwise reproducible.
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

// The limit of the kernels without tensor cores.
inline constexpr int64_t kMostHeadDim = 256;

// REQUIRES: PlainSharedBytes(head_dim) fits the device, head_dim is at most kMostHeadDim, and seq of
// context-parallel ranks is even.
void Run(Queue& queue, const AttentionForward& op, const KernelContext& context, const Operands& operands);
void Run(Queue& queue, const AttentionBackward& op, const KernelContext& context, const Operands& operands);
void Run(Queue& queue, const ContextAttentionForward& op, const KernelContext& context,
         const Operands& operands);
void Run(Queue& queue, const ContextAttentionBackward& op, const KernelContext& context,
         const Operands& operands);
void Run(Queue& queue, const MergeAttention& op, const Operands& operands);

int64_t ScratchBytes(const AttentionBackward& op, const Traits& traits);
int64_t ScratchBytes(const ContextAttentionBackward& op, const Traits& traits);

// Shared memory of a block of the kernels without tensor cores. The others need less than any device that
// runs them has.
int64_t PlainSharedBytes(int64_t head_dim);

}  // namespace windtunnel::WT_KERNELS
