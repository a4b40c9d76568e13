// One rank's device in virtual time, operator by operator, as StepExecutor runs it where hosts issue; but in the order of the program, without
// an event queue: all that can be in flight beside a kernel was issued before it.
//
// An StageAction is a stage's forward or backward of a micro-batch. Where the host is far enough ahead, nothing but the action's own
// collectives is in flight and the tensor queue is idle when it begins, it takes the same time whenever it begins: that is worked out
// once, and layers in the middle are not even walked.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/composed/rank_strategy.h"
#include "sim/composed/stage_template.h"

namespace windtunnel::composed {

// A change of memory and the highest level on the way to it, bytes.
struct MemoryPass {
  int64_t net = 0, peak = 0;

  void Add(int64_t bytes) {
    net += bytes;
    peak = peak > net ? peak : net;
  }
  MemoryPass Then(const MemoryPass& next) const { return {net + next.net, std::max(peak, net + next.peak)}; }
  MemoryPass Times(int64_t count) const {
    return count == 0 ? MemoryPass{}
                      : MemoryPass{count * net, peak + std::max<int64_t>((count - 1) * net, 0)};
  }
};

struct StageAction {
  struct Run {
    const Part* part = nullptr;
    int64_t count = 0;
  };
  std::array<Run, 4> runs;
  int32_t made_at = -1;  // the model's operator that makes the message; -1: none does
  int64_t host = 0;      // picoseconds of all its operators
  // When it begins at 0 in the way that is said above; else it has to be walked.
  bool is_regular = false;
  int64_t duration = 0, made = 0;
  int64_t slack = 0;  // how much earlier than the action the host has to be at its first operator
  // Until the messages that are known to have arrived are freed, and from then on.
  MemoryPass lead, rest;
};

// The k-layer action of a pass.
StageAction MakeForward(const StageTemplate& stage, int64_t layers);
StageAction MakeBackward(const StagePass& pass, int64_t layers);

// The memory of a step's first backward, with what the strategy allocates for gradients: groups of the rank's strategy from
// `group` on. Messages as in StageAction.
void AddGradientMemory(const StageAction& action, const RankStrategy& strategy, size_t group,
                       MemoryPass& lead, MemoryPass& rest);

class RankWalk {
 public:
  void Reset(const RankStrategy* strategy);

  int64_t host() const { return host_; }
  int64_t compute() const { return ends_[kCompute]; }
  void AddHost(int64_t time) { host_ += time; }

  // Begins when all that it waits for has arrived (`arrived`); returns when its message is made.
  int64_t Do(const StageAction& action, int64_t arrived);
  // The same operator by operator, with the strategy's beside it: group number `group` is the first, and is moved on.
  int64_t DoWithGroups(const StageAction& action, int64_t arrived,
                       const std::vector<RankStrategy::Group>& groups, size_t& group);

  // What follows the backwards. Runs until an operator that meets other ranks': returns it, and when this rank has come to it; -1 at
  // the end. Met says when all have, and ends it.
  int32_t RunTail(int64_t sends_arrived, int64_t& arrival);
  void Met(int32_t op, int64_t start);
  // The latest end of anything.
  int64_t End() const;

 private:
  friend StageAction MakeAction(std::array<StageAction::Run, 4> runs, int32_t made_by);

  struct Interval {
    int64_t start, end;
    double efficiency;
  };
  struct Lane {  // communication that may be in flight beside kernels
    std::vector<Interval> intervals;
    size_t head = 0;
  };

  bool IsQuiet(int64_t begin);
  int64_t Walk(const StageAction& action, int64_t arrived, const std::vector<RankStrategy::Group>* groups,
               size_t* group);
  int64_t Issue(const TimedOp& op, int64_t arrived);
  void Issue(int32_t strategy_op, int64_t arrived);
  int64_t ArrivalOf(const StrategyOp& op) const;
  int64_t Begin(uint8_t stream, int64_t work, double efficiency, int64_t start);
  int64_t KernelEnd(int64_t start, int64_t work);
  void RunAlone(int32_t begin, int32_t end);

  static constexpr int kHistory = 8;
  int64_t host_ = 0;
  std::array<int64_t, kLocalStreams> ends_{};
  std::array<std::array<int64_t, kHistory>, 2>
      history_{};  // of compute and tensor: ends of the last operators
  std::array<uint32_t, 2> issued_{};
  std::array<Lane, kLocalStreams> lanes_;
  uint32_t busy_lanes_ = 0;  // bits
  const RankStrategy* strategy_ = nullptr;
  std::vector<int64_t> strategy_ends_;
  int32_t tail_ = -1;
  // Without a host: the least of (when an operator begins - the host's time until then).
  bool ignores_host_ = false;
  int64_t slack_ = 0;
};

}  // namespace windtunnel::composed
