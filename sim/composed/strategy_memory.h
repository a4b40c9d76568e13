// The memory of a strategy's step, as RankStrategy gives it: what is resident, what is allocated around each
// operator of the model, and the peaks after the backwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/step_program.h"
#include "scenarios/scenario.h"
#include "sim/composed/rank_strategy.h"

namespace windtunnel::composed {

// A rank's role after its strategy has made a step.
struct DrivenRole {
  const Role& role;
  const Program& step;
  AllocatorKind allocator;
  // Of the role's buffers the first `built` came with the strategy, those from `before_step` on with the
  // step.
  size_t built = 0, before_step = 0;
  bool starts_up = false;              // the first buckets are gone by the step
  std::vector<BufferId> rebuilt = {};  // the buckets that replace them
  BufferId tensor_scratch = -1, expert_scratch = -1;
};

// Bytes, as the device's allocator rounds them; 0 in the host's memory.
int64_t RequestedBy(const Buffer& buffer, AllocatorKind allocator);

// Adds what a RankStrategy says of memory to one that is complete without.
void AddMemory(const DrivenRole& driven, RankStrategy& strategy);

}  // namespace windtunnel::composed
