#include "plan/schedule_order.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "plan/schedule_times.h"

namespace windtunnel {
namespace {

// The shortest, since ForEachMoment has a moment for each picosecond.
constexpr Duration kUnit = Picoseconds(1);
constexpr StageTimes kUnitTimes{kUnit, kUnit, kUnit};

// Whether another rank needs the action's result; if so, sets `send`.
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

// When the rank has finished the action, or both actions of a pair.
Duration EndOf(const Schedule& schedule, const ScheduleTimes& times, int rank, size_t i) {
  const std::vector<Action>& actions = schedule.ranks[rank];
  Duration end = times.starts[rank][i] + kUnitTimes.Of(actions[i].kind);
  if (schedule.paired.empty()) return end;
  if (schedule.paired.contains(actions[i])) end += kUnitTimes.Of(actions[i + 1].kind);
  if (i > 0 && schedule.paired.contains(actions[i - 1])) end += kUnitTimes.Of(actions[i - 1].kind);
  return end;
}

// Calls `f(moment, action, rank)` for every event. At the same time messages come first: they are made by
// actions that end then, for actions that begin then.
template <typename F>
void ForEachMoment(const Schedule& schedule, const ScheduleTimes& times, F f) {
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      f(2 * static_cast<size_t>(times.starts[rank][i].picoseconds()) + 1, action, rank);
      Action send;
      if (NeedsSend(schedule, action, send))
        f(2 * static_cast<size_t>(EndOf(schedule, times, rank, i).picoseconds()), send, rank);
    }
  }
}

}  // namespace

// A counting sort by moment, then a sort of the few events of each moment.
std::vector<ScheduleEvent> InOneOrder(const Schedule& schedule) {
  const ScheduleTimes times = RunSchedule(schedule, kUnitTimes);
  const size_t moments = 2 * (static_cast<size_t>(times.makespan.picoseconds()) + 1);
  std::vector<size_t> next(moments + 1);  // by moment: the index of its next event
  std::vector<std::pair<size_t, ScheduleEvent>> by_rank;
  size_t actions = 0;
  for (const std::vector<Action>& of_rank : schedule.ranks) actions += of_rank.size();
  by_rank.reserve(2 * actions);
  ForEachMoment(schedule, times, [&](size_t moment, const Action& action, int rank) {
    by_rank.push_back({moment, {action, rank}});
    ++next[moment + 1];
  });
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  std::vector<ScheduleEvent> events(by_rank.size());
  for (const auto& [moment, event] : by_rank) events[next[moment]++] = event;
  size_t begin = 0;
  for (size_t i = 0; i < moments; ++i) {  // next[i] is the end of moment i here
    std::sort(events.begin() + static_cast<ptrdiff_t>(begin),
              events.begin() + static_cast<ptrdiff_t>(next[i]),
              [](const ScheduleEvent& a, const ScheduleEvent& b) { return a.action < b.action; });
    begin = next[i];
  }
  return events;
}

}  // namespace windtunnel
