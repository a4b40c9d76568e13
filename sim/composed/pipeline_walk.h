// A pipeline's schedule in one order for all its ranks, so that whatever an action or a message waits for comes before it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "plan/schedule.h"
#include "scenarios/scenario.h"

namespace windtunnel::composed {

struct PipelineEvent {
  enum class Kind : uint8_t { kForward, kBackward, kMessage };
  Kind kind = Kind::kForward;
  bool is_first = false, is_last = false;  // of its stage in the step; the latter of a backward alone
  bool follows_messages = false;           // an action that the rank sent or received right before
  int16_t chunk = 0;                       // which of the rank's stages
  int16_t reduces =
      -1;  // backward: the rank's stage whose gradients may be reduced behind it (DataParallel::ReduceStage)
  int32_t rank = 0;      // message: the sender
  int32_t receiver = 0;  // message
  int32_t released = 0;  // sent messages of the rank that are known to have arrived when the action begins
  int32_t in = -1;       // the message that an action waits for; -1: none
  int32_t out = -1;      // the message that it makes, or that this is; -1: none
  int32_t lane = -1;     // message: of all from its sender to its receiver
};

struct PipelineWalk {
  int ranks = 1, stages_per_rank = 1;
  int32_t messages = 0, lanes = 0;
  std::vector<PipelineEvent> events;
  std::vector<int32_t> unreleased;       // by rank: sent messages that no action releases
  std::vector<bool> ends_with_messages;  // by rank
};

// Of one rank without a pipeline, too. Errors: those of ScheduleOf; Unsupported for schedules that split backwards or hand over within a rank,
// and for tens of thousands of stages a rank.
Result<PipelineWalk> MakePipelineWalk(const Scenario& scenario);

}  // namespace windtunnel::composed
