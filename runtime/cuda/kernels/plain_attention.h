// Attention without tensor cores, for fp32, for head sizes that those kernels do not have, and for eager attention, which keeps its
// probabilities. Eight lanes share a row.
#pragma once

#include "runtime/cuda/kernels/attention_shape.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

// `probabilities` ([batch, heads, seq, seq], hidden ones zero) may be null, and so may log_sum_exp.
template <typename T>
void PlainForward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in, T* out,
                  float* log_sum_exp, T* probabilities);

// What backward has of the forward pass: the log-sum-exp, or the probabilities themselves where that is null. `products` are those of
// out and dout, [batch, heads, seq].
template <typename T>
struct AttentionSaved {
  const T* dout = nullptr;
  const float *log_sum_exp = nullptr, *products = nullptr;
  const T* probabilities = nullptr;
};
// dqueries (acc).
template <typename T>
void PlainBackward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in,
                   const AttentionSaved<T>& saved, bool accumulate_queries,
                   const AttentionGradients<T>& gradients);

}  // namespace windtunnel::WT_KERNELS
