// In what order a forward and a backward of two micro-batches take turns, so that tokens of one go to experts and back while the other
// computes (Megatron's overlap_moe_expert_parallel_comm, DeepSeek's DualPipe). In a turn are the i-th layer of the forward and the i-th from
// the end of the backward:
//
//   compute    backward of what adds up | attention, router | experts' backward, weights' | experts | attention's backward, weights'
//   exchange   combine's backward       |                   | dispatch, its backward      | combine |
//
// Each exchange waits for what it sends only, and its computation for what it brings, so the two micro-batches hide each other's.
// As megatron/core/models/common/model_chunk_schedule_plan.py, whose nodes these are; but what adds up returned tokens is computed with the
// next layer's attention here, and beside the exchange there; and of what is made again (recompute_modules) the norm before the MLP, the MLP
// and the shared expert come before combine's backward.
#pragma once

#include "plan/program_builder.h"

namespace windtunnel {

enum class LayerSlot : int {
  // of the backward: up to the exchange that brings gradients to experts
  kCombineBackward,
  // of the forward: up to the tokens that are sent
  kAttention,
  // gradients of what experts took
  kExpertsBackward,
  // the exchange that brings tokens to experts, before which the host waits for their counts
  kDispatch,
  // where gradients of weights are put off: those of experts
  kExpertWeights,
  // the exchange that brings gradients back
  kDispatchBackward,
  // or the plain MLP
  kExperts,
  // the exchange that brings tokens back
  kCombine,
  // from what adds up gradients that came back on
  kAttentionBackward,
  // of the router, too; of the head before the layers, of embeddings behind them
  kAttentionWeights,
  // adds up tokens that came back
  kCombined,
};

inline void AtSlot(ProgramBuilder& b, LayerSlot slot) { b.AtSlot(static_cast<int>(slot)); }

}  // namespace windtunnel
