// A step assembled from actions, a schedule and what a strategy adds, and its memory (step_course.h has its
// time).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/composed/pipeline_walk.h"
#include "sim/composed/rank_strategy.h"
#include "sim/composed/rank_walk.h"
#include "sim/composed/stage_action.h"
#include "sim/composed/stage_template.h"

namespace windtunnel::composed {

// A stage's actions.
struct StageActions {
  std::shared_ptr<const StageTemplate> stage;
  int64_t kept = 0;  // bytes that the model keeps beside its parameters
  StageAction forward;
  // By BackwardKind.
  std::array<StageAction, kBackwardKinds> first_backward, backward;

  const StageAction& Backward(BackwardKind kind, bool is_first) const {
    return (is_first ? first_backward : backward)[static_cast<size_t>(kind)];
  }
};

struct AssembledStep {
  std::shared_ptr<const PipelineWalk> walk;
  std::vector<const StageActions*> actions;  // by stage
  std::vector<std::shared_ptr<const StageActions>> kept_actions;
  // Pipeline ranks with the same layers in their stages, the same ends of the pipeline, and the same order of
  // passes.
  struct RankClass {
    int rank = 0;             // the class's first
    std::vector<int> stages;  // its stages
    PassOrder passes;
    std::shared_ptr<const RankStrategy> strategy = {};
    int64_t resident = 0;
  };
  std::vector<RankClass> classes;
  std::vector<int> class_of;  // by rank
  // Bytes: the whole message between stages, and the part of it that is sent to one rank.
  int64_t message = 0, received = 0;
  // By rank, picoseconds: a message between it and the next one; for the last rank, between it and the first.
  std::vector<int64_t> message_times;
  int64_t send_host = 0, receive_host = 0;
  bool host_awaits_messages = false, gathers_with_forward = false;
  int64_t peak = 0;

  int stages() const { return static_cast<int>(actions.size()); }
  const RankClass& ClassOf(int rank) const { return classes[static_cast<size_t>(class_of[rank])]; }
  const StageActions& ActionsOf(const PipelineEvent& event) const {
    return *actions[static_cast<size_t>(event.stage)];
  }
  int64_t MessageTime(int from, int to) const;  // between neighbours, or the last and the first rank
  // The index in RankStrategy::first of the first group of PassOrder::first[pass].
  size_t FirstGroup(const RankClass& of, size_t pass) const;
  size_t GroupsOf(const StageAction& action) const;
  // The memory of a rank's PassOrder::first[pass].
  ActionMemory MemoryOfFirst(const RankClass& of, size_t pass, const StageAction& backward) const;

  // Raises `peak` to that of ranks [begin, end). Stops at the first level above `capacity`. REQUIRES: the
  // actions of these ranks' stages.
  void FindPeak(int begin, int end, int64_t capacity);

  // Whether the time at which the host issues gathers of values (overlap_param_gather) is known before
  // anything runs, or follows from the action alone.
  bool GathersAreKnown() const;
  // Whether hosts wait in the middle of a forward (TimedOp::holds_host).
  bool HoldsHosts() const;
  // By event: the first forwards that its rank's host reaches after it, before the host waits again. Empty
  // for an action in which the host does not wait: these forwards are listed for an earlier event.
  std::vector<std::vector<RankWalk::LaterForward>> LaterForwards() const;
  // Issues these gathers for all ranks, if hosts do not wait for messages.
  void GatherAhead(std::vector<RankWalk>& ranks) const;
};

}  // namespace windtunnel::composed
