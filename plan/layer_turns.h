// The order in which the forward of one micro-batch and the backward of another take turns, so that tokens of
// one go to experts and back while the other computes (Megatron's overlap_moe_expert_parallel_comm,
// DeepSeek's DualPipe). A turn pairs the i-th layer of the forward with the i-th from the end of the
// backward:
//
//   compute    backward of what adds up | attention, router | experts' backward, weights' | experts | attention's backward, weights'
//   exchange   combine's backward       |                   | dispatch, its backward      | combine |
//
// An exchange waits only for what it sends, and a computation only for what it receives, so each micro-batch
// hides the other's exchanges.
// The nodes are those of megatron/core/models/common/model_chunk_schedule_plan.py. Two things differ: here
// returned tokens are summed with the next layer's attention, there beside the exchange; and of what is
// recomputed (recompute_modules) the norm before the MLP, the MLP and the shared expert come before combine's
// backward.
#pragma once

#include "plan/program_builder.h"

namespace windtunnel {

enum class LayerSlot : int {
  // backward of the sum of returned tokens, up to the exchange that brings gradients to experts
  kCombineBackward,
  // forward of attention and router, up to the tokens that are sent
  kAttention,
  // input gradients of experts
  kExpertsBackward,
  // the exchange that brings tokens to experts, before which the host waits for their counts
  kDispatch,
  // weight gradients of experts, if these are delayed
  kExpertWeights,
  // the exchange that brings gradients back
  kDispatchBackward,
  // forward of experts, or of the plain MLP
  kExperts,
  // the exchange that brings tokens back
  kCombine,
  // backward of attention, beginning with the sum of gradients that came back
  kAttentionBackward,
  // weight gradients of attention and router; the head's before the layers, the embeddings' behind them
  kAttentionWeights,
  // the sum of returned tokens
  kCombined,
};

inline void AtSlot(ProgramBuilder& b, LayerSlot slot) { b.AtSlot(static_cast<int>(slot)); }

}  // namespace windtunnel
