#include "plan/schedule_times.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace windtunnel {
namespace {

// `TimeOf`: an ActionTime, or a lambda that the compiler can inline.
template <typename TimeOf>
class Run {
 public:
  Run(const Schedule& schedule, const TimeOf& time, Duration message)
      : schedule_(schedule),
        time_(time),
        message_(message),
        activations_(static_cast<size_t>(schedule.stages()) * schedule.micro_batches, kNotMade),
        gradients_(activations_.size(), kNotMade) {
    result_.starts.resize(schedule.ranks.size());
    result_.work.resize(schedule.ranks.size());
    result_.done.resize(schedule.ranks.size());
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank)
      result_.starts[rank].reserve(schedule.ranks[rank].size());
  }

  ScheduleTimes ToEnd() {
    bool progress = true;
    while (progress) {
      progress = false;
      for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
        while (Step(rank)) progress = true;
      }
    }
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      WT_CHECK_EQ(result_.starts[rank].size(), schedule_.ranks[rank].size());
      result_.makespan = std::max(result_.makespan, result_.done[rank]);
    }
    return std::move(result_);
  }

 private:
  static constexpr Duration kNotMade = Picoseconds(-1);

  Duration& At(std::vector<Duration>& ends, int stage, int64_t micro_batch) {
    return ends[static_cast<size_t>(stage) * schedule_.micro_batches + micro_batch];
  }

  // When the result that stage `from` made at `made` is on the rank of stage `to`.
  Duration Arrival(Duration made, int from, int to) const {
    if (made == kNotMade || schedule_.rank_of_stage[from] == schedule_.rank_of_stage[to]) return made;
    return made + message_;
  }

  // When the input of `action` is there; kNotMade while that is not known yet.
  Duration InputAt(const Action& action) {
    const bool is_first = action.stage == 0, is_last = action.stage == schedule_.stages() - 1;
    switch (action.kind) {
      case ActionKind::kForward:
        if (is_first) return Duration();
        return Arrival(At(activations_, action.stage - 1, action.micro_batch), action.stage - 1,
                       action.stage);
      case ActionKind::kBackward:
      case ActionKind::kInputGradient:
        if (is_last) return Duration();
        return Arrival(At(gradients_, action.stage + 1, action.micro_batch), action.stage + 1, action.stage);
      case ActionKind::kWeightGradient:
        return Duration();  // its input gradient came before it on this rank
      default:
        break;
    }
    WT_CHECK(!IsCommunication(action.kind));
    return kNotMade;
  }

  // How many actions the rank runs next: one, the two of a pair, or none at the end.
  size_t CountNext(size_t rank) const {
    const size_t next = result_.starts[rank].size(), left = schedule_.ranks[rank].size() - next;
    return left > 1 && schedule_.paired.contains(schedule_.ranks[rank][next]) ? 2 : std::min<size_t>(left, 1);
  }

  bool Step(size_t rank) {
    std::vector<Duration>& starts = result_.starts[rank];
    const Action* first = schedule_.ranks[rank].data() + starts.size();
    const std::span<const Action> actions(first, CountNext(rank));
    Duration& done = result_.done[rank];
    Duration start = done, length;
    for (const Action& action : actions) {
      const Duration input = InputAt(action);
      if (input == kNotMade) return false;
      start = std::max(start, input);
      length += time_(action);
    }
    if (actions.empty()) return false;
    for (size_t i = 0; i < actions.size(); ++i) starts.push_back(start);
    done = start + length;
    result_.work[rank] += length;
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kForward) At(activations_, action.stage, action.micro_batch) = done;
      if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kInputGradient)
        At(gradients_, action.stage, action.micro_batch) = done;
    }
    return true;
  }

  const Schedule& schedule_;
  const TimeOf& time_;
  const Duration message_;
  // By stage and micro-batch: when the stage's output, and the gradient of its input, are made.
  std::vector<Duration> activations_, gradients_;
  ScheduleTimes result_;
};

}  // namespace

Duration StageTimes::Of(ActionKind kind) const {
  switch (kind) {
    case ActionKind::kForward:
      return forward;
    case ActionKind::kBackward:
      return backward();
    case ActionKind::kInputGradient:
      return input_gradient;
    case ActionKind::kWeightGradient:
      return weight_gradient;
    default:
      return Duration();
  }
}

ScheduleTimes RunSchedule(const Schedule& schedule, const ActionTime& time, Duration message) {
  return Run(schedule, time, message).ToEnd();
}

ScheduleTimes RunSchedule(const Schedule& schedule, const StageTimes& times) {
  const auto time = [&](const Action& action) { return times.Of(action.kind); };
  return Run(schedule, time, Duration()).ToEnd();
}

}  // namespace windtunnel
