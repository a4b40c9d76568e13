// A pipeline's schedule as one sequence for all its ranks, in which whatever an action or a message waits for
// comes before it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "scenarios/scenario.h"
#include "sim/composed/backward_kind.h"
#include "sim/composed/memory_trace.h"

namespace windtunnel::composed {

struct PipelineEvent {
  enum class Kind : uint8_t { kForward, kBackward, kMessage };
  // The slot of the message that an action waits for; -1: none. Of a message: its lane. Messages have a slot
  // from the action that makes them to the one that waits for them.
  int32_t in = -1;
  int32_t out = -1;   // the slot of the message that the action makes, or that this event is; -1: none
  int16_t stage = 0;  // action
  int16_t rank = 0;   // message: the sender
  // Backward: the rank's stage whose gradients may be reduced after it (DataParallel::ReduceStage); -1: none.
  int16_t reduces = -1;
  Kind kind : 2 = Kind::kForward;
  BackwardKind backward : 2 = BackwardKind::kWhole;
  // Action: the first of its stage in the step. Backward: the first or the last (PassOrder).
  bool is_first : 1 = false, is_last : 1 = false;
  bool follows_messages : 1 = false;  // action: the rank has sent or received since its last one

  int32_t lane() const { return in; }  // message
};
static_assert(sizeof(PipelineEvent) == 16);  // walks have millions of events, and searches hundreds of walks

struct PipelineWalk {
  int ranks = 1, stages_per_rank = 1;
  std::vector<int> rank_of_stage = {0};
  std::vector<PassOrder> passes;  // by rank
  bool splits_backwards = false;  // some backward is not whole
  int32_t message_slots = 0;      // the most messages that are made and still needed at once
  struct Lane {
    int16_t from, to;  // ranks
  };
  std::vector<Lane> lanes;  // a sender and a receiver each, in the order of their first messages
  std::vector<PipelineEvent> events;
  size_t before_last_backwards = 0;      // number of events before the first of a stage's last backwards
  std::vector<MemoryTrace> memory;       // by rank
  std::vector<bool> ends_with_messages;  // by rank: it sends or receives after its last action
};

// Also for one rank without a pipeline. Errors: those of ScheduleOf; Unsupported for stages that are placed
// neither in a loop nor in a V, for stages whose first or last gradients come partly from a whole backward and
// partly from one that is split, and for tens of thousands of stages.
Result<PipelineWalk> MakePipelineWalk(const Scenario& scenario);

// Whether the scenario's schedule, by its name, has whole backwards only, and its stages are placed in a loop.
// Then ranks have WholePasses.
bool HasWholePasses(const PipelineSpec& pipeline);

}  // namespace windtunnel::composed
