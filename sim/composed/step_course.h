// A step in virtual time: the actions and messages of all ranks in one order, then what follows them.
//
//   StepBeginnings beginnings;                                       // shared by similar steps
//   const Duration time = StepCourse(step).Run(beginnings);          // StepExecutor's makespan
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/units.h"
#include "sim/composed/assembled_step.h"
#include "sim/composed/rank_walk.h"

namespace windtunnel::composed {

// Where a step has got to.
struct StepState {
  std::vector<RankWalk> ranks;
  // By message slot: when its message is made, then when it has arrived; written before it is read.
  std::vector<int64_t> messages;
  std::vector<int64_t> lane_ends;  // by PipelineWalk::lanes: when the last message so far has arrived
  // By rank: when its last message ended, sent or received. Only kept up if hosts wait for it.
  std::vector<int64_t> exchanged;
};

// The states of some recent steps before the first of a stage's last backwards. Up to there a step depends on
// its actions and messages alone, so one that differs only in what its strategy does later goes on from it.
// From any thread.
class StepBeginnings {
 public:
  // Null if it is not known.
  std::shared_ptr<const StepState> Find(const AssembledStep& step);
  void Keep(const AssembledStep& step, const StepState& state);

 private:
  // What a beginning depends on. Pointers are into what ComposedSteps keeps.
  struct Key {
    const PipelineWalk* walk = nullptr;
    std::vector<const StageActions*> actions;
    std::vector<int64_t> message_times;
    int64_t send_host = 0, receive_host = 0;
    bool host_awaits_messages = false;

    bool operator==(const Key&) const = default;
  };
  struct Known {
    Key key;
    std::shared_ptr<const StepState> state;
  };

  static Key KeyOf(const AssembledStep& step);

  std::mutex mutex_;
  std::array<Known, 16> known_;
  size_t next_ = 0;
};

class StepCourse {
 public:
  // `step` must outlive it. REQUIRES: a peak within the capacity, and the messages' times.
  explicit StepCourse(const AssembledStep& step);
  Duration Run(StepBeginnings& beginnings);

 private:
  // Whether the strategies do nothing before the first of a stage's last backwards.
  bool BeginsAlike() const;
  void GoOn(size_t begin, size_t end);
  // A message that was made at `made`. Returns when it has arrived.
  int64_t Exchange(size_t lane, int64_t made);
  // Return when the action's message is made. `event`: its index.
  int64_t Forward(size_t event, int64_t arrival);
  int64_t Backward(const PipelineEvent& event, int64_t arrival);
  Duration Finish();

  const AssembledStep& step_;
  const PipelineWalk& order_;
  std::vector<const RankStrategy*> strategies_;  // by rank
  std::vector<int64_t> message_times_;           // by lane
  StepState state_;
  // Indices of groups (RankStrategy), by rank.
  std::vector<size_t> next_use_, next_first_, next_last_;
  const bool holds_;  // hosts wait within forwards while parameters are gathered
  std::vector<std::vector<RankWalk::LaterForward>> later_;  // if holds_: by event
};

}  // namespace windtunnel::composed
