#include "plan/schedule.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "plan/schedule_times.h"

namespace windtunnel {
namespace {

// What happens at one moment: a rank begins a computation, or a message goes from one rank to another.
struct Event {
  Duration at;  // in units of a computation's time
  // A message goes first: it was made by what ended at this moment, for what begins at it.
  bool is_computation = false;
  Action action;  // the computation, or the send
  int rank = 0;   // that does it
};

bool operator<(const Event& a, const Event& b) {
  return std::tie(a.at, a.is_computation, a.action) < std::tie(b.at, b.is_computation, b.action);
}

// The send after `action`, if its result goes to another rank.
bool NeedsSend(const Schedule& schedule, const Action& action, Action& send) {
  const bool is_forward = action.kind == ActionKind::kForward;
  if (action.kind == ActionKind::kWeightGradient) return false;
  const int consumer = is_forward ? action.stage + 1 : action.stage - 1;
  if (consumer < 0 || consumer >= schedule.stages()) return false;
  if (schedule.rank_of_stage[consumer] == schedule.rank_of_stage[action.stage]) return false;
  send = {is_forward ? ActionKind::kSendActivation : ActionKind::kSendGradient, action.stage,
          action.micro_batch};
  return true;
}

// Sorted. Moments are few, and little happens at each: they are counted first.
std::vector<Event> InOrder(std::vector<Event> events) {
  const auto moment = [](const Event& event) {
    return static_cast<size_t>(2 * event.at.picoseconds() + (event.is_computation ? 1 : 0));
  };
  std::vector<size_t> begin(1);
  for (const Event& event : events) {
    if (begin.size() < moment(event) + 2) begin.resize(moment(event) + 2);
    ++begin[moment(event) + 1];
  }
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  std::vector<Event> sorted(events.size());
  std::vector<size_t> next = begin;
  for (const Event& event : events) sorted[next[moment(event)]++] = event;
  for (size_t i = 0; i + 1 < begin.size(); ++i)
    std::sort(sorted.begin() + static_cast<ptrdiff_t>(begin[i]),
              sorted.begin() + static_cast<ptrdiff_t>(begin[i + 1]));
  return sorted;
}

std::vector<Event> EventsOf(const Schedule& schedule, const StageTimes& unit) {
  const ScheduleTimes times = RunSchedule(schedule, unit);
  std::vector<Event> events;
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      const Duration start = times.starts[rank][i];
      events.push_back({start, true, action, rank});
      if (Action send; NeedsSend(schedule, action, send)) {
        events.push_back({start + unit.Of(action.kind), false, send, rank});
      }
    }
  }
  return InOrder(std::move(events));
}

}  // namespace

std::vector<int> LoopPlacement(int ranks, int virtual_stages) {
  std::vector<int> rank_of_stage(static_cast<size_t>(ranks) * virtual_stages);
  for (size_t stage = 0; stage < rank_of_stage.size(); ++stage)
    rank_of_stage[stage] = static_cast<int>(stage % ranks);
  return rank_of_stage;
}

std::vector<int> VPlacement(int ranks) {
  std::vector<int> rank_of_stage(static_cast<size_t>(ranks) * 2);
  for (int rank = 0; rank < ranks; ++rank) rank_of_stage[rank] = rank_of_stage[2 * ranks - 1 - rank] = rank;
  return rank_of_stage;
}

bool IsSend(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}

bool IsCommunication(ActionKind kind) {
  return IsSend(kind) || kind == ActionKind::kReceiveActivation || kind == ActionKind::kReceiveGradient;
}

std::string ActionLetters(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "F";
    case ActionKind::kBackward:
      return "B";
    case ActionKind::kInputGradient:
      return "I";
    case ActionKind::kWeightGradient:
      return "W";
    case ActionKind::kSendActivation:
      return "SEND_F";
    case ActionKind::kReceiveActivation:
      return "RECV_F";
    case ActionKind::kSendGradient:
      return "SEND_B";
    case ActionKind::kReceiveGradient:
      return "RECV_B";
  }
  WT_CHECK(false);
}

std::string FormatAction(const Action& action) {
  return fmt::format("{}{}{}", action.stage, ActionLetters(action.kind), action.micro_batch);
}

std::string DescribeAction(const Action& action) {
  const char* what = "";
  switch (action.kind) {
    case ActionKind::kForward:
      what = "forward";
      break;
    case ActionKind::kBackward:
      what = "backward";
      break;
    case ActionKind::kInputGradient:
      what = "input gradient";
      break;
    case ActionKind::kWeightGradient:
      what = "weight gradient";
      break;
    case ActionKind::kSendActivation:
      what = "send of the output";
      break;
    case ActionKind::kReceiveActivation:
      what = "receive of the input";
      break;
    case ActionKind::kSendGradient:
      what = "send of the input's gradient";
      break;
    case ActionKind::kReceiveGradient:
      what = "receive of the output's gradient";
      break;
  }
  return fmt::format("{} (stage {}, {} of micro-batch {})", FormatAction(action), action.stage, what,
                     action.micro_batch);
}

Action Counterpart(const Action& action) {
  switch (action.kind) {
    case ActionKind::kSendActivation:
      return {ActionKind::kReceiveActivation, action.stage + 1, action.micro_batch};
    case ActionKind::kReceiveActivation:
      return {ActionKind::kSendActivation, action.stage - 1, action.micro_batch};
    case ActionKind::kSendGradient:
      return {ActionKind::kReceiveGradient, action.stage - 1, action.micro_batch};
    case ActionKind::kReceiveGradient:
      return {ActionKind::kSendGradient, action.stage + 1, action.micro_batch};
    default:
      break;
  }
  WT_CHECK(IsCommunication(action.kind));
  return action;
}

Schedule AddCommunication(const Schedule& schedule) {
  const Duration unit = Picoseconds(1);  // any length will do: only the order of the events is used
  Schedule lowered{schedule.name, schedule.micro_batches, schedule.rank_of_stage, {}};
  lowered.ranks.resize(schedule.ranks.size());
  for (const Event& event : EventsOf(schedule, {unit, unit, unit})) {
    lowered.ranks[event.rank].push_back(event.action);
    if (event.is_computation) continue;
    const Action receive = Counterpart(event.action);
    lowered.ranks[schedule.rank_of_stage[receive.stage]].push_back(receive);
  }
  return lowered;
}

int ReceiverOf(const Schedule& schedule, const Action& send) {
  return schedule.rank_of_stage[Counterpart(send).stage];
}

Schedule MergeBackwards(const Schedule& schedule) {
  Schedule merged{schedule.name, schedule.micro_batches, schedule.rank_of_stage, {}};
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<Action>& out = merged.ranks.emplace_back();
    for (const Action& action : actions) {
      const Action input_gradient{ActionKind::kInputGradient, action.stage, action.micro_batch};
      if (action.kind == ActionKind::kWeightGradient && !out.empty() && out.back() == input_gradient) {
        out.back().kind = ActionKind::kBackward;
      } else {
        out.push_back(action);
      }
    }
  }
  return merged;
}

bool SplitsBackward(const Schedule& schedule) {
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kWeightGradient) return true;
    }
  }
  return false;
}

}  // namespace windtunnel
