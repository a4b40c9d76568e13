// One rank's device in virtual time, operator by operator, as StepExecutor runs it where hosts issue; but in the order of the program, without
// an event queue: all that can be in flight beside a kernel was issued before it.
//
//   RankWalk rank;
//   rank.Reset(&strategy);
//   const int64_t made = rank.Do(forward, arrived);   // each action of the schedule in turn, whole where it is regular
//   while ((op = rank.RunTail(sent, arrival)) >= 0) rank.Met(op, latest arrival of all ranks);
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/composed/rank_strategy.h"
#include "sim/composed/shared_device.h"
#include "sim/composed/stage_action.h"

namespace windtunnel::composed {

// Fills in `copies`: on all ranks, and in all steps, that have the strategy they go the same way.
void RunCopiesAhead(RankStrategy& strategy);

class RankWalk {
 public:
  // Begins the step.
  void Reset(const RankStrategy* strategy);

  int64_t host() const { return host_; }
  void AddHost(int64_t time) { host_ += time; }
  // The host waits for all that the rank has issued, and until `arrived`.
  void AwaitAll(int64_t arrived);

  // Begins when all that it waits for has arrived (`arrived`); returns when its message is made.
  int64_t Do(const StageAction& action, int64_t arrived);
  // The same operator by operator, with the strategy's beside it: group number `group` is the first, and is moved on.
  int64_t DoWithGroups(const StageAction& action, int64_t arrived,
                       const std::vector<RankStrategy::Group>& groups, size_t& group);

  // A step's first forward of a stage, operator by operator, with the gathers of values that begin with it (RankStrategy::values, from number
  // `group` on, which is moved on). What runs on the device while the host is ahead feels them: they are issued first, by GatherAhead.
  int64_t DoWithValues(const StageAction& action, int64_t arrived, size_t& group);
  // Any forward, with the gathers if it `has_values`, where the host waits on the way (TimedOp::holds_host): gathers are issued as far as to
  // its next waiting, those of later forwards on the rank, too, that it comes to before.
  struct LaterForward {
    const StageAction* forward = nullptr;  // the first of its stage
    int64_t host = 0;  // from the end of the one before (or of the action that they come after) until it
  };
  int64_t DoHeld(const StageAction& action, int64_t arrived, bool has_values, size_t& group,
                 std::span<const LaterForward> later);
  // The gathers of a first forward that the host comes to at `host`: returns when it has issued all of the forward.
  int64_t GatherAhead(const StageAction& action, int64_t host, size_t& group);

  // What the strategy leaves to the schedule, of the rank's stages from the last one down to number `stage`, once.
  void Reduce(size_t stage);

  // What follows the backwards. Runs until an operator that meets other ranks': returns it, and when this rank has come to it; -1 at
  // the end. Met says when all have, and ends it.
  int32_t RunTail(int64_t sends_arrived, int64_t& arrival);
  void Met(int32_t op, int64_t start);
  // The latest end of anything.
  int64_t End() const;

  // An action on an idle device, as if its host had issued everything long ago.
  struct Rehearsed {
    std::array<int64_t, kModelStreams> ends{};  // when the queues have done
    std::array<bool, kModelStreams> is_used{};
    int64_t made = 0;
    // The least, over operators, of when one begins less the action's host time until it is issued.
    int64_t slack = 0;
    int64_t host = 0;  // when all is issued

    int64_t duration() const { return ends[kCompute]; }
    // Whether communication has ended, too.
    bool is_done() const { return *std::max_element(ends.begin(), ends.end()) == ends[kCompute]; }
    // How far the queues that are used are ahead of computation.
    std::array<int64_t, kModelStreams> Leads() const {
      std::array<int64_t, kModelStreams> leads{};
      for (size_t i = 0; i < ends.size(); ++i)
        if (is_used[i]) leads[i] = ends[i] - ends[kCompute];
      return leads;
    }
  };
  // Or else (`ignores_host` false) as its host comes to it then.
  static Rehearsed Rehearse(const StageAction& action, bool ignores_host = true);

 private:
  void Clear(int stream);
  bool IsQuiet(int64_t begin);
  int64_t Walk(const StageAction& action, int64_t arrived);
  int64_t Issue(const TimedOp& op, int64_t arrived);
  // How far an action is that begins with gathers of values, or may.
  struct Course {
    const bool has_values = false;
    int64_t arrived = 0, gathered = 0;  // what the next computation waits for
    int64_t made = 0;                   // the message
    int32_t number = 0;                 // of operators that are not the strategy's
  };
  void Issue(const TimedOp& op, const StageAction& action, size_t& group, Course& course);
  // Those of later forwards, to which the host comes when `left` of this one's is issued, which has `group` as the next of its own.
  void GatherForLater(std::span<const TimedOp* const> left, bool has_values, size_t group,
                      std::span<const LaterForward> later);
  // Issues the gathers of values of `ops` up to the first that holds the host, and leaves the host there; `group` is the number of the
  // first, and returned the number behind the last.
  size_t GatherUntilHeld(std::span<const TimedOp* const> ops, size_t group);
  // What the host does for a group of values that were gathered ahead; when they are there.
  int64_t TakeValues(size_t& group);
  void Issue(int32_t strategy_op, int64_t arrived);
  int64_t ArrivalOf(const StrategyOp& op) const;
  int64_t EndOfDependencies(const StrategyOp& op) const;
  template <typename AnyOp>
  int64_t Begin(const AnyOp& op, double own_speed, int64_t start);
  int64_t KernelEnd(int64_t start, int64_t work, double own_speed);
  double SpeedAt(int64_t now, double own_speed, int64_t& change);
  int32_t RunCopies(int32_t begin, int64_t sends_arrived);

  int64_t host_ = 0;
  std::array<int64_t, kLocalStreams> ends_{};
  std::array<std::array<int64_t, kHistory>, kModelStreams> history_{};  // ends of the last operators
  std::array<uint32_t, kModelStreams> issued_{};
  Lanes lanes_;
  uint32_t busy_lanes_ = 0;  // bits
  const RankStrategy* strategy_ = nullptr;
  std::vector<int64_t> strategy_ends_;
  int32_t tail_ = -1;
  bool ignores_host_ = false;  // rehearses
  bool is_idle_ = false;       // since AwaitAll
  // Of how many first forwards that follow what they begin with is gathered (DoHeld).
  size_t gathered_ahead_ = 0;
  int64_t slack_ = 0;
  size_t unreduced_ = 0;  // stages whose gradients the schedule has not had reduced
};

}  // namespace windtunnel::composed
