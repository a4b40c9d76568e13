#include "plan/schedule.h"

#include "base/check.h"
#include "plan/schedule_order.h"

namespace windtunnel {
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
  Schedule lowered{schedule.name, schedule.micro_batches, schedule.rank_of_stage, {}};
  lowered.ranks.resize(schedule.ranks.size());
  lowered.paired = schedule.paired;
  for (const ScheduleEvent& event : InOneOrder(schedule)) {
    lowered.ranks[event.rank].push_back(event.action);
    if (!IsSend(event.action.kind)) continue;
    const Action receive = Counterpart(event.action);
    lowered.ranks[schedule.rank_of_stage[receive.stage]].push_back(receive);
  }
  return lowered;
}

int ReceiverOf(const Schedule& schedule, const Action& send) {
  return schedule.rank_of_stage[Counterpart(send).stage];
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
