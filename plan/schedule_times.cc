#include "plan/schedule_times.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace windtunnel {
namespace {

class Run {
 public:
  Run(const Schedule& schedule, const StageTimes& times)
      : schedule_(schedule),
        times_(times),
        activations_(static_cast<size_t>(schedule.stages()) * schedule.micro_batches),
        gradients_(activations_.size()),
        free_at_(schedule.ranks.size()) {
    result_.starts.resize(schedule.ranks.size());
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
      result_.makespan = std::max(result_.makespan, free_at_[rank]);
    }
    return std::move(result_);
  }

 private:
  using EndTime = std::optional<Duration>;

  EndTime& At(std::vector<EndTime>& ends, int stage, int64_t micro_batch) {
    return ends[static_cast<size_t>(stage) * schedule_.micro_batches + micro_batch];
  }

  // When the input of `action` exists; nothing while that is not known yet.
  EndTime InputAt(const Action& action) {
    const bool is_first = action.stage == 0, is_last = action.stage == schedule_.stages() - 1;
    switch (action.kind) {
      case ActionKind::kForward:
        return is_first ? Duration() : At(activations_, action.stage - 1, action.micro_batch);
      case ActionKind::kBackward:
      case ActionKind::kInputGradient:
        return is_last ? Duration() : At(gradients_, action.stage + 1, action.micro_batch);
      case ActionKind::kWeightGradient:
        return Duration();  // its input gradient came before it on this rank
      default:
        break;
    }
    WT_CHECK(!IsCommunication(action.kind));
    return {};
  }

  bool Step(size_t rank) {
    std::vector<Duration>& starts = result_.starts[rank];
    if (starts.size() == schedule_.ranks[rank].size()) return false;
    const Action& action = schedule_.ranks[rank][starts.size()];
    const EndTime input = InputAt(action);
    if (!input) return false;
    starts.push_back(std::max(*input, free_at_[rank]));
    free_at_[rank] = starts.back() + times_.Of(action.kind);
    if (action.kind == ActionKind::kForward)
      At(activations_, action.stage, action.micro_batch) = free_at_[rank];
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kInputGradient) {
      At(gradients_, action.stage, action.micro_batch) = free_at_[rank];
    }
    return true;
  }

  const Schedule& schedule_;
  const StageTimes& times_;
  std::vector<EndTime> activations_,
      gradients_;  // when each stage's output and input gradient of a micro-batch is made
  std::vector<Duration> free_at_;
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

ScheduleTimes RunSchedule(const Schedule& schedule, const StageTimes& times) {
  return Run(schedule, times).ToEnd();
}

Duration Bubble(const Schedule& schedule, const StageTimes& times) {
  const int64_t stages_per_rank = schedule.stages() / static_cast<int64_t>(schedule.ranks.size());
  return RunSchedule(schedule, times).makespan - times.all() * (stages_per_rank * schedule.micro_batches);
}

}  // namespace windtunnel
