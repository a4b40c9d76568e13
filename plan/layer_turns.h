// In what order a forward and a backward of two micro-batches take turns, so that tokens of one go to experts and back while the other
// computes (Megatron's overlap_moe_expert_parallel_comm, DeepSeek's DualPipe). In a turn are the i-th layer of the forward and the i-th from
// the end of the backward:
//
//   compute    backward of what adds up | attention, router | experts' backward, weights' | experts | attention's backward, weights'
//   exchange   combine's backward       |                   | dispatch, its backward      | combine |
//
// Each exchange waits for what it sends only, and its computation for what it brings, so the two micro-batches hide each other's.
// As megatron/core/models/common/model_chunk_schedule_plan.py, whose nodes these are; but what adds up returned tokens is computed with the
// next layer's attention here, and beside the exchange there.
#pragma once

#include "plan/program_builder.h"

namespace windtunnel {

enum class LayerSlot : int {
  kCombineBackward,  // of the backward: up to the exchange that brings gradients to experts
  kAttention,        // of the forward: up to the tokens that are sent
  kExpertsBackward,  // gradients of what experts took
  kDispatch,       // the exchange that brings tokens to experts, before which the host waits for their counts
  kExpertWeights,  // where gradients of weights are put off: those of experts
  kDispatchBackward,   // the exchange that brings gradients back
  kExperts,            // or the plain MLP
  kCombine,            // the exchange that brings tokens back
  kAttentionBackward,  // from what adds up gradients that came back on
  kAttentionWeights,   // of the router, too
  kCombined,           // adds up tokens that came back
};

inline void AtSlot(ProgramBuilder& b, LayerSlot slot) { b.AtSlot(static_cast<int>(slot)); }

}  // namespace windtunnel
