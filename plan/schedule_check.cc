#include "plan/schedule_check.h"

#include <algorithm>

namespace windtunnel {
namespace {

// A set of actions of a schedule: a byte for each stage and micro-batch, with one bit per kind.
class ActionSet {
 public:
  explicit ActionSet(const Schedule& schedule)
      : micro_batches_(schedule.micro_batches),
        bits_(static_cast<size_t>(schedule.stages()) * micro_batches_) {}

  void Add(const Action& action) { Bits(action) |= Bit(action.kind); }
  bool Has(const Action& action) const {
    return const_cast<ActionSet*>(this)->Bits(action) & Bit(action.kind);
  }
  bool Has(ActionKind kind, int stage, int64_t micro_batch) const { return Has({kind, stage, micro_batch}); }
  bool HasBackward(int stage, int64_t micro_batch) const {
    return Has(ActionKind::kBackward, stage, micro_batch) ||
           Has(ActionKind::kInputGradient, stage, micro_batch);
  }

 private:
  static uint8_t Bit(ActionKind kind) { return static_cast<uint8_t>(1u << static_cast<int>(kind)); }
  uint8_t& Bits(const Action& a) {
    return bits_[static_cast<size_t>(a.stage) * micro_batches_ + a.micro_batch];
  }

  int64_t micro_batches_;
  std::vector<uint8_t> bits_;
};
static_assert(static_cast<int>(ActionKind::kReceiveGradient) < 8, "a kind is a bit of a byte");

using Fault = std::optional<ScheduleFault>;

// Checks each rank's list by itself: ranges, placement, duplicates, the order of actions of one stage and
// micro-batch, and missing actions.
class ListCheck {
 public:
  explicit ListCheck(const Schedule& schedule) : schedule_(schedule), seen_(schedule) {}

  Fault Find() {
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (size_t i = 0; i < schedule_.ranks[rank].size(); ++i) {
        const Action& action = schedule_.ranks[rank][i];
        if (std::string what = WrongAt(action, static_cast<int>(rank)); !what.empty()) {
          return ScheduleFault{static_cast<int>(rank), static_cast<int64_t>(i), std::move(what)};
        }
        seen_.Add(action);
        has_communication_ |= IsCommunication(action.kind);
      }
    }
    return Missing();
  }

 private:
  std::string WrongAt(const Action& action, int rank) const {
    const std::string what = DescribeAction(action);
    if (action.stage < 0 || action.stage >= schedule_.stages()) {
      return fmt::format("{}: the stages are 0 to {}", what, schedule_.stages() - 1);
    }
    if (action.micro_batch < 0 || action.micro_batch >= schedule_.micro_batches) {
      return fmt::format("{}: the micro-batches are 0 to {}", what, schedule_.micro_batches - 1);
    }
    if (const int holder = schedule_.rank_of_stage[action.stage]; holder != rank) {
      return fmt::format("{} stands on rank {}, but rank {} holds stage {}", what, rank, holder,
                         action.stage);
    }
    if (IsCommunication(action.kind)) {
      const int other = Counterpart(action).stage;
      if (other < 0 || other >= schedule_.stages() || schedule_.rank_of_stage[other] == rank) {
        return fmt::format("{}: no other rank holds stage {}", what, other);
      }
    }
    if (seen_.Has(action)) return fmt::format("{} stands there a second time", what);
    return WrongOrder(action, what);
  }

  std::string WrongOrder(const Action& action, const std::string& what) const {
    const auto [kind, stage, micro_batch] = action;
    const bool is_backward = kind == ActionKind::kBackward || kind == ActionKind::kInputGradient;
    if (is_backward && !seen_.Has(ActionKind::kForward, stage, micro_batch)) {
      return fmt::format("{} comes without its forward {} before it", what,
                         FormatAction({ActionKind::kForward, stage, micro_batch}));
    }
    if (is_backward && seen_.HasBackward(stage, micro_batch)) {
      return fmt::format("{}: this backward is already done; one is either B, or I and later W", what);
    }
    if (kind == ActionKind::kWeightGradient && !seen_.Has(ActionKind::kInputGradient, stage, micro_batch)) {
      return fmt::format("{} comes without its input gradient {} before it", what,
                         FormatAction({ActionKind::kInputGradient, stage, micro_batch}));
    }
    return "";
  }

  Fault Missing() const {
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      for (int64_t i = 0; i < schedule_.micro_batches; ++i) {
        if (Fault fault = MissingIn(stage, i)) return fault;
      }
    }
    return std::nullopt;
  }

  Fault MissingIn(int stage, int64_t i) const {
    const auto missing = [&](ActionKind kind) {
      const int rank = schedule_.rank_of_stage[stage];
      return ScheduleFault{rank, -1,
                           fmt::format("{} is missing on rank {}", DescribeAction({kind, stage, i}), rank)};
    };
    if (!seen_.Has(ActionKind::kForward, stage, i)) return missing(ActionKind::kForward);
    if (!seen_.HasBackward(stage, i)) return missing(ActionKind::kBackward);
    if (seen_.Has(ActionKind::kInputGradient, stage, i) &&
        !seen_.Has(ActionKind::kWeightGradient, stage, i)) {
      return missing(ActionKind::kWeightGradient);
    }
    if (!has_communication_) return std::nullopt;
    if (stage + 1 < schedule_.stages() &&
        schedule_.rank_of_stage[stage] != schedule_.rank_of_stage[stage + 1]) {
      for (const Action& action : {Action{ActionKind::kSendActivation, stage, i},
                                   Action{ActionKind::kReceiveActivation, stage + 1, i},
                                   Action{ActionKind::kSendGradient, stage + 1, i},
                                   Action{ActionKind::kReceiveGradient, stage, i}}) {
        if (!seen_.Has(action)) {
          return ScheduleFault{schedule_.rank_of_stage[action.stage], -1,
                               DescribeAction(action) + " is missing"};
        }
      }
    }
    return std::nullopt;
  }

  const Schedule& schedule_;
  ActionSet seen_;
  bool has_communication_ = false;
};

// Executes all lists as far as possible to find deadlocks. REQUIRES: ListCheck found nothing.
class DryRun {
 public:
  explicit DryRun(const Schedule& schedule)
      : schedule_(schedule), done_(schedule), next_(schedule.ranks.size()) {
    for (const auto& actions : schedule.ranks) {
      for (const Action& action : actions) has_communication_ |= IsCommunication(action.kind);
    }
  }

  Fault Find() {
    bool progress = true;
    while (progress) {
      progress = false;
      for (size_t rank = 0; rank < next_.size(); ++rank) {
        while (Step(static_cast<int>(rank))) progress = true;
      }
    }
    for (size_t rank = 0; rank < next_.size(); ++rank) {
      if (Current(static_cast<int>(rank))) return Deadlock(static_cast<int>(rank));
    }
    return std::nullopt;
  }

 private:
  const Action* Current(int rank) const {
    const auto& actions = schedule_.ranks[rank];
    return next_[rank] < actions.size() ? &actions[next_[rank]] : nullptr;
  }
  int RankOf(const Action& action) const { return schedule_.rank_of_stage[action.stage]; }

  // What must be done before `action` can run, if anything; its receive, if the schedule has communication.
  std::optional<Action> Needs(const Action& action) const {
    const auto [kind, stage, i] = action;
    const auto input = [&, stage = stage, i = i](int producer, ActionKind made, ActionKind received) {
      const bool is_local = schedule_.rank_of_stage[producer] == schedule_.rank_of_stage[stage];
      return has_communication_ && !is_local ? Action{received, stage, i} : Action{made, producer, i};
    };
    switch (kind) {
      case ActionKind::kForward:
        if (stage == 0) return std::nullopt;
        return input(stage - 1, ActionKind::kForward, ActionKind::kReceiveActivation);
      case ActionKind::kBackward:
      case ActionKind::kInputGradient:
        if (stage + 1 == schedule_.stages()) return std::nullopt;
        return input(stage + 1, ActionKind::kBackward, ActionKind::kReceiveGradient);
      case ActionKind::kSendActivation:
        return Action{ActionKind::kForward, stage, i};
      case ActionKind::kSendGradient:
        return Action{ActionKind::kBackward, stage, i};
      default:
        return std::nullopt;
    }
  }

  bool IsDone(const Action& action) const {
    if (action.kind == ActionKind::kBackward) return done_.HasBackward(action.stage, action.micro_batch);
    return done_.Has(action);
  }

  bool Step(int rank) {
    const Action* action = Current(rank);
    if (!action) return false;
    if (const auto needed = Needs(*action); needed && !IsDone(*needed)) return false;
    if (schedule_.paired.contains(*action)) return StepPair(rank, action[1]);
    if (IsCommunication(action->kind)) {
      const Action other = Counterpart(*action);
      const int peer = RankOf(other);
      const Action* theirs = Current(peer);
      if (!theirs || *theirs != other) return false;
      const Action& send = IsSend(action->kind) ? *action : other;
      if (const auto needed = Needs(send); needed && !IsDone(*needed)) return false;
      done_.Add(other);
      ++next_[peer];
    }
    done_.Add(*action);
    ++next_[rank];
    return true;
  }

  // Runs a forward whose input is there, together with the backward that follows it.
  bool StepPair(int rank, const Action& backward) {
    if (const auto needed = Needs(backward); needed && !IsDone(*needed)) return false;
    for (int i = 0; i < 2; ++i) {
      done_.Add(*Current(rank));
      ++next_[rank];
    }
    return true;
  }

  // The action that the blocked `action` waits for.
  Action WaitsFor(const Action& action) const {
    if (const auto needed = Needs(action); needed && !IsDone(*needed)) return *needed;
    if (schedule_.paired.contains(action)) return *Needs((&action)[1]);
    return Counterpart(action);
  }

  // Follows the waits from one blocked rank to the next until a rank repeats: these ranks form the cycle.
  Fault Deadlock(int rank) const {
    std::vector<int> path;
    while (std::find(path.begin(), path.end(), rank) == path.end()) {
      path.push_back(rank);
      rank = RankOf(WaitsFor(*Current(rank)));
    }
    std::string what = "deadlock";
    const char* separator = ": ";
    for (auto stuck = std::find(path.begin(), path.end(), rank); stuck != path.end(); ++stuck) {
      const Action waited_for = WaitsFor(*Current(*stuck));
      what +=
          fmt::format("{}rank {} cannot run {} before {}, which rank {} has not come to", separator, *stuck,
                      DescribeAction(*Current(*stuck)), FormatAction(waited_for), RankOf(waited_for));
      separator = "; ";
    }
    return ScheduleFault{rank, static_cast<int64_t>(next_[rank]), what};
  }

  const Schedule& schedule_;
  ActionSet done_;
  std::vector<size_t> next_;  // by rank, its current position
  bool has_communication_ = false;
};

}  // namespace

std::optional<ScheduleFault> FindScheduleFault(const Schedule& schedule) {
  if (auto fault = ListCheck(schedule).Find()) return fault;
  return DryRun(schedule).Find();
}

std::vector<int64_t> ActivationsInFlight(const Schedule& schedule) {
  std::vector<int64_t> most;
  for (const std::vector<Action>& actions : schedule.ranks) {
    int64_t held = 0, peak = 0;
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kForward) peak = std::max(peak, ++held);
      if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightGradient) --held;
    }
    most.push_back(peak);
  }
  return most;
}

}  // namespace windtunnel
