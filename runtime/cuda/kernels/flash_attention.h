// Flash attention on tensor cores (mma.sync m16n8k16, sm_80 and later) for bf16 and fp16. Scores stay in
// registers, forward and backward. Keys and values (backward: queries and dout, too) stream through shared
// memory; the next tile is fetched while one is processed.
//
// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, except that
// a separate kernel sums the gradients of queries, instead of atomic additions: 7 products per tile instead
// of 5, and bitwise reproducible.
#pragma once

#include "runtime/cuda/kernels/plain_attention.h"

namespace windtunnel::WT_KERNELS {

// Whether these kernels support the operands: a head_dim of at most 128 that is whole pieces of 16 bytes, and
// aligned pointers.
bool FlashTakes(const AttentionShape& shape, const void* queries, const void* keys, const void* out);

// T: BFloat16, Float16. REQUIRES: FlashTakes.
template <typename T>
void FlashForward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in, T* out,
                  float* log_sum_exp);

// saved.probabilities is not read. Adds to gradients.queries if `accumulate_queries`.
template <typename T>
void FlashBackward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in,
                   const AttentionSaved<T>& saved, bool accumulate_queries,
                   const AttentionGradients<T>& gradients);

}  // namespace windtunnel::WT_KERNELS
