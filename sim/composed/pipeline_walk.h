// A pipeline's schedule as one sequence for all its ranks, in which whatever an action or a message waits for
// comes before it.
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
  bool is_first = false, is_last = false;  // of its stage in the step; is_last: backwards only
  bool follows_messages = false;           // action: the rank has sent or received since its last one
  int16_t chunk = 0;                       // which of the rank's stages
  // Backward: the rank's stage whose gradients may be reduced after it (DataParallel::ReduceStage); -1: none.
  int16_t reduces = -1;
  int32_t rank = 0;      // message: the sender
  int32_t receiver = 0;  // message
  int32_t released = 0;  // action: sent messages of the rank that become known to have arrived when it begins
  int32_t in = -1;       // the message that an action waits for; -1: none
  int32_t out = -1;      // the message that the action makes, or that this event is; -1: none
  int32_t lane = -1;     // message: index of the pair of its sender and its receiver
};

struct PipelineWalk {
  int ranks = 1, stages_per_rank = 1;
  int32_t messages = 0, lanes = 0;
  std::vector<PipelineEvent> events;
  std::vector<int32_t> unreleased;       // by rank: sent messages that no action releases
  std::vector<bool> ends_with_messages;  // by rank: it sends or receives after its last action
};

// Also for one rank without a pipeline. Errors: those of ScheduleOf; Unsupported for schedules that split
// backwards or whose stages hand over within a rank, and for tens of thousands of stages a rank.
Result<PipelineWalk> MakePipelineWalk(const Scenario& scenario);

}  // namespace windtunnel::composed
