// Causal attention with grouped keys and values: flash (own kernels on tensor cores for 16-bit types, without them for fp32) and eager, and
// that of context-parallel ranks (operands: plan/op.h). Gradients are summed in one order by one block each, so runs repeat their bits.
#pragma once

#include "plan/op.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

// Of kernels without tensor cores.
inline constexpr int64_t kMostHeadDim = 256;

// REQUIRES: SharedBytes(op) fits the device, head_dim is at most kMostHeadDim, and seq of context-parallel ranks is even.
void Run(Queue& queue, const AttentionForward& op, const Operands& operands);
void Run(Queue& queue, const AttentionBackward& op, const Operands& operands);
void Run(Queue& queue, const ContextAttentionForward& op, const KernelContext& context,
         const Operands& operands);
void Run(Queue& queue, const ContextAttentionBackward& op, const KernelContext& context,
         const Operands& operands);
void Run(Queue& queue, const MergeAttention& op, const Operands& operands);

int64_t ScratchBytes(const AttentionBackward& op, const Traits& traits);
int64_t ScratchBytes(const ContextAttentionBackward& op, const Traits& traits);

// Shared memory that a block of the kernels without tensor cores needs; those with them need less than any device has that runs them.
int64_t PlainSharedBytes(int64_t head_dim);

}  // namespace windtunnel::WT_KERNELS
