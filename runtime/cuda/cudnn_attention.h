// Attention as graphs for which cuDNN has fused kernels: their GEMMs, masks and sums, in the order
// that cuDNN expects. Scores stay on the chip, as in this project's flash attention
// (kernels/flash_attention.h). The rows' log-sum-exp is saved in the same form, so the backward of one may
// follow the forward of the other.
#pragma once

#include <compare>
#include <cstdint>

#include "base/result.h"
#include "plan/op.h"
#include "runtime/cuda/cudnn_graph.h"

namespace windtunnel::cuda {

// Queries, keys and values lie side by side in rows of (heads + 2 kv_heads) x head_dim (plan/ops.h).
struct AttentionProblem {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  DType dtype = DType::kBFloat16;
  bool causal = true;
  auto operator<=>(const AttentionProblem&) const = default;
};

// `hidden` is an operand of causal attention only.
struct AttentionForwardTensors {
  GraphTensor queries, keys, values, scale, hidden, out, log_sum_exp;
};
struct AttentionForwardPlan {
  GraphPlan plan;
  AttentionForwardTensors tensors;
};

struct AttentionBackwardTensors {
  GraphTensor queries, keys, values, out, dout, log_sum_exp, scale, hidden, one, dqueries, dkeys, dvalues;
  // fp32, in the caller's memory: [batch, heads, seq]; and [batch, heads, seq, head_dim], zero when the plan
  // begins.
  GraphTensor products, query_sums;
};
struct AttentionBackwardPlan {
  GraphPlan plan;
  AttentionBackwardTensors tensors;
};

// The value of masked scores, which NVIDIA's frontend chooses by cuDNN's version.
float HiddenScore(const CudnnApi& api);

// Unsupported: cuDNN has no kernel for the problem on that device.
Result<AttentionForwardPlan> PlanAttentionForward(const CudnnApi& api, const AttentionProblem& problem,
                                                  const GraphTarget& target);
Result<AttentionBackwardPlan> PlanAttentionBackward(const CudnnApi& api, const AttentionProblem& problem,
                                                    const GraphTarget& target);

}  // namespace windtunnel::cuda
