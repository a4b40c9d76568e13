// Attention without tensor cores: for fp32, for head sizes that the tensor-core kernels do not support, and
// for eager attention, which keeps its probabilities. Eight lanes share a row.
#pragma once

#include "runtime/cuda/kernels/attention_shape.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

// `probabilities` ([batch, heads, seq, seq], zero where hidden) may be null, and so may log_sum_exp.
template <typename T>
void PlainForward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in, T* out,
                  float* log_sum_exp, T* probabilities);

// The forward pass's results for backward: the log-sum-exp or, if that is null, the probabilities themselves.
// `products` are the dot products of the rows of out and dout, [batch, heads, seq].
template <typename T>
struct AttentionSaved {
  const T* dout = nullptr;
  const float *log_sum_exp = nullptr, *products = nullptr;
  const T* probabilities = nullptr;
};
// Adds to gradients.queries if `accumulate_queries`.
template <typename T>
void PlainBackward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in,
                   const AttentionSaved<T>& saved, bool accumulate_queries,
                   const AttentionGradients<T>& gradients);

}  // namespace windtunnel::WT_KERNELS
