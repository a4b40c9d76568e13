// Flash attention on tensor cores (mma.sync m16n8k16, sm_80 and later) for bf16 and fp16: scores stay in registers, forward and backward,
// and keys and values (backward: queries and dout, too) stream through shared memory, the next tile on its way while one is worked on.
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, but for the gradients of queries, which
// a kernel of their own sums up instead of atomic additions: 7 products a tile instead of 5, and the same bits every time.
#pragma once

#include "runtime/cuda/kernels/plain_attention.h"

namespace windtunnel::WT_KERNELS {

// Whether these kernels take the operands: heads of up to 128 in pieces of 16 bytes.
bool FlashTakes(const AttentionShape& shape, const void* queries, const void* keys, const void* out);

// T: BFloat16, Float16. REQUIRES: FlashTakes.
template <typename T>
void FlashForward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in, T* out,
                  float* log_sum_exp);

// saved.probabilities is not read. dqueries (acc).
template <typename T>
void FlashBackward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in,
                   const AttentionSaved<T>& saved, bool accumulate_queries,
                   const AttentionGradients<T>& gradients);

}  // namespace windtunnel::WT_KERNELS
