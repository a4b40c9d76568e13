// One rank's device in virtual time, operator by operator, with StepExecutor's results where hosts issue. It
// goes in program order without an event queue, since everything that can be in flight beside a kernel was
// issued before it.
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

// Fills in `copies`, which are the same on all ranks and in all steps that have the strategy.
void RunCopiesAhead(RankStrategy& strategy);

class RankWalk {
 public:
  // Begins the step.
  void Reset(const RankStrategy* strategy);
  // Goes on with another strategy. REQUIRES: nothing of the current one has been issued.
  void Adopt(const RankStrategy* strategy);

  int64_t host() const { return host_; }
  void AddHost(int64_t time) { host_ += time; }
  // The host waits for all that the rank has issued, and until `arrived`.
  void AwaitAll(int64_t arrived);

  // Runs an action, which begins when everything that it waits for has arrived (`arrived`). Returns when its
  // message is made.
  int64_t Do(const StageAction& action, int64_t arrived);
  // The same operator by operator, with the strategy's around them. `group` is the index of the first group,
  // and is moved past the last.
  int64_t DoWithGroups(const StageAction& action, int64_t arrived,
                       const std::vector<RankStrategy::Group>& groups, size_t& group);

  // A step's first forward of a stage, operator by operator, with its gathers of values (RankStrategy::values
  // from index `group` on, which is moved on). The gathers slow down kernels that run while the host is
  // ahead, so GatherAhead has to have issued them before.
  int64_t DoWithValues(const StageAction& action, int64_t arrived, size_t& group);
  // Any forward, with its gathers if it `has_values`, where the host waits on the way (TimedOp::holds_host).
  // Gathers are issued up to the host's next wait, including those of `later` forwards of the rank that it
  // reaches before.
  struct LaterForward {
    const StageAction* forward = nullptr;  // the first of its stage
    int64_t host = 0;  // from the end of the previous one (or of the action before them all) to its beginning
  };
  int64_t DoHeld(const StageAction& action, int64_t arrived, bool has_values, size_t& group,
                 std::span<const LaterForward> later);
  // Issues the gathers of a first forward that the host reaches at `host`. Returns when the host has issued
  // the whole forward.
  int64_t GatherAhead(const StageAction& action, int64_t host, size_t& group);

  // Issues the reductions that the strategy leaves to the schedule, each once: of the rank's stages from the
  // last one down to index `stage`.
  void Reduce(size_t stage);

  // Runs what follows the backwards, up to an operator that meets other ranks. Returns its index, and in
  // `arrival` when this rank has reached it; -1 at the end. Met then runs that operator from `start`, when
  // all ranks have reached it.
  int32_t RunTail(int64_t sends_arrived, int64_t& arrival);
  void Met(int32_t op, int64_t start);
  // The latest end of anything.
  int64_t End() const;

  // An action on an idle device, as if its host had issued everything long ago.
  struct Rehearsed {
    std::array<int64_t, kModelStreams> ends{};  // when the queues are done
    std::array<bool, kModelStreams> is_used{};
    int64_t made = 0;
    // The minimum over operators of (when it begins) - (the action's host time until it is issued).
    int64_t slack = 0;
    int64_t host = 0;  // when all is issued

    int64_t duration() const { return ends[kCompute]; }
    // Whether communication has ended, too.
    bool is_done() const { return *std::max_element(ends.begin(), ends.end()) == ends[kCompute]; }
    // How much later than computation each used queue is done.
    std::array<int64_t, kModelStreams> Leads() const {
      std::array<int64_t, kModelStreams> leads{};
      for (size_t i = 0; i < ends.size(); ++i)
        if (is_used[i]) leads[i] = ends[i] - ends[kCompute];
      return leads;
    }
  };
  // If `ignores_host` is false, its host begins to issue it when the action begins.
  static Rehearsed Rehearse(const StageAction& action, bool ignores_host = true);

 private:
  void Clear(int stream);
  void ClearAll();
  bool IsAlone(int64_t begin);
  bool IsQuiet(int64_t begin);
  int64_t Walk(const StageAction& action, int64_t arrived);
  // What the next computation waits for, if the action that should have waited for it computes nothing (the
  // input gradients of embeddings).
  void Await(int64_t arrived);
  void FollowComputation(const RankStrategy::Group& last);
  int64_t Issue(const TimedOp& op, int64_t arrived);
  // The state of an action that has gathers of values, or may have them, while it is issued.
  struct Course {
    const bool has_values = false;
    int64_t arrived = 0, gathered = 0;  // what the next computation waits for
    int64_t made = 0;                   // when its message is made
    int32_t number = 0;                 // operators so far that are not the strategy's
  };
  void Issue(const TimedOp& op, const StageAction& action, size_t& group, Course& course);
  // Issues the gathers of later forwards, which the host reaches when it has issued `left`, the rest of this
  // one. `group` is the index of this forward's next group.
  void GatherForLater(std::span<const TimedOp* const> left, bool has_values, size_t group,
                      std::span<const LaterForward> later);
  // Issues the gathers of values of `ops` up to the first operator that holds the host, and leaves the host
  // there. `group` is the index of the first group. Returns the index after the last.
  size_t GatherUntilHeld(std::span<const TimedOp* const> ops, size_t group);
  // Adds the host's time for a group of values that was gathered ahead. Returns when the values are there.
  int64_t TakeValues(size_t& group);
  void Issue(int32_t strategy_op, int64_t arrived);
  int64_t ArrivalOf(const StrategyOp& op) const;
  int64_t EndOfDependencies(const StrategyOp& op) const;
  template <typename AnyOp>
  int64_t Begin(const AnyOp& op, double own_speed, int64_t start);
  int64_t KernelEnd(int64_t start, int64_t work, double own_speed);
  double SpeedAt(int64_t now, double own_speed, int64_t& change);
  void FindBeside(int64_t now);
  int32_t RunCopies(int32_t begin, int64_t sends_arrived);

  int64_t host_ = 0;
  std::array<int64_t, kLocalStreams> ends_{};
  std::array<std::array<int64_t, kHistory>, kModelStreams> history_{};  // ends of each queue's last operators
  std::array<uint32_t, kModelStreams> issued_{};
  Lanes lanes_;
  uint32_t busy_lanes_ = 0;  // one bit per lane
  int64_t flights_end_ = 0;  // of the last flight on any lane
  // What kernels have beside them from `begin` to `end`, if nothing more is issued: their speed, and whether
  // some of it holds multiprocessors.
  struct Beside {
    int64_t begin = 0, end = 0;
    double speed = 1;
    bool holds = false;
  };
  Beside beside_;
  const RankStrategy* strategy_ = nullptr;
  std::vector<int64_t> strategy_ends_;
  int32_t tail_ = -1;
  bool ignores_host_ = false;  // rehearses
  bool is_idle_ = false;       // since AwaitAll
  // The number of following first forwards whose first gathers are issued already (DoHeld).
  size_t gathered_ahead_ = 0;
  int64_t slack_ = 0;
  size_t unreduced_ = 0;  // number of stages whose reductions (RankStrategy) are not issued yet
};

}  // namespace windtunnel::composed
