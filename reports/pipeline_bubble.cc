#include "reports/pipeline_bubble.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "plan/schedule_bubble.h"
#include "reports/pipeline_actions.h"

namespace windtunnel {
namespace {

Duration Mean(const std::vector<Duration>& values) {
  Duration sum;
  for (Duration value : values) sum += value;
  return values.empty() ? sum : sum / static_cast<int64_t>(values.size());
}

// The time after the rank's last action in which it computes or waits for exposed communication. Waiting for
// other stages and idling are not included.
Duration TailOf(const Plan& plan, const Timeline& timeline) {
  const std::vector<ActionSpan> actions = ActionSpans(plan, timeline);
  const Role& role = plan.RoleOf(timeline.rank);
  Timeline tail = timeline;
  const Duration from = actions.empty() ? Duration() : actions.back().end;
  std::erase_if(tail.spans, [&](const Span& span) { return span.end <= from; });
  for (Span& span : tail.spans) {
    span.start = std::max(span.start - from, Duration());
    span.end -= from;
  }
  tail.end -= from;
  const StepBreakdown breakdown = BreakDown(tail, role, role.steady);
  return breakdown.compute + breakdown.exposed_communication;
}

MessageUse MessagesOf(const Plan& plan, const std::vector<const Timeline*>& timelines) {
  MessageUse use;
  std::vector<Duration> times;
  for (const Timeline* timeline : timelines) {
    if (!timeline) continue;
    const Program& program = plan.RoleOf(timeline->rank).steady;
    for (const Span& span : timeline->spans) {
      const OpKind& kind = program.ops[span.op].kind;
      if (!std::holds_alternative<Send>(kind)) continue;
      use.bytes = std::max(use.bytes, MessageBytes(kind));
      times.push_back(span.end - span.start);
    }
  }
  use.count = static_cast<int64_t>(times.size());
  std::sort(times.begin(), times.end());
  if (!times.empty()) use.time = times[times.size() / 2];
  return use;
}

// By (kind, stage): sum and number of actions.
using ActionTimes = std::map<std::pair<ActionKind, int>, std::pair<Duration, int64_t>>;

Duration MeanOf(const ActionTimes& times, ActionKind kind, int stage) {
  const auto found = times.find({kind, stage});
  return found == times.end() ? Duration() : found->second.first / found->second.second;
}

StageUse StageUseOf(const ActionTimes& times, int stage) {
  StageUse use;
  use.has_backward = times.contains({ActionKind::kBackward, stage});
  use.has_split = times.contains({ActionKind::kInputGradient, stage});
  use.times.forward = MeanOf(times, ActionKind::kForward, stage);
  use.times.input_gradient = MeanOf(times, ActionKind::kInputGradient, stage);
  use.times.weight_gradient = MeanOf(times, ActionKind::kWeightGradient, stage);
  // A schedule with both kinds of backward is described by the split ones.
  if (!use.has_split) use.times.input_gradient = MeanOf(times, ActionKind::kBackward, stage);
  return use;
}

StageTimes MeanTimes(const std::vector<StageUse>& stages) {
  StageTimes sum;
  for (const StageUse& stage : stages) {
    sum.forward += stage.times.forward;
    sum.input_gradient += stage.times.input_gradient;
    sum.weight_gradient += stage.times.weight_gradient;
  }
  const auto count = static_cast<int64_t>(stages.size());
  return {sum.forward / count, sum.input_gradient / count, sum.weight_gradient / count};
}

// The mean over ranks of the time that a rank waits: for its inputs, and from the end of its own work until
// all ranks are done.
Duration MeanBubble(const ScheduleTimes& times, const std::vector<Duration>& tail) {
  std::vector<Duration> work = times.work;
  Duration end;
  for (size_t rank = 0; rank < work.size(); ++rank) {
    const Duration after = tail.empty() ? Duration() : tail[rank];
    end = std::max(end, times.done[rank] + after);
    work[rank] += after;
  }
  return end - Mean(work);
}

}  // namespace

PipelineUse PipelineUseOf(const Plan& plan, const std::vector<Timeline>& timelines) {
  const std::vector<const Timeline*> of_ranks = TimelinesByPipelineRank(plan, timelines);
  PipelineUse use;
  ActionTimes times;
  for (const Timeline* timeline : of_ranks) {
    use.tail.push_back(timeline ? TailOf(plan, *timeline) : Duration());
    if (!timeline) continue;
    for (const ActionSpan& span : ActionSpans(plan, *timeline)) {
      auto& [sum, count] = times[{span.action.kind, span.action.stage}];
      sum += span.end - span.start;
      const auto [action, is_first] = use.actions.try_emplace(span.action);
      action->second += span.end - span.start;
      count += is_first;
    }
  }
  for (int stage = 0; stage < plan.pipeline->schedule.stages(); ++stage)
    use.stages.push_back(StageUseOf(times, stage));
  use.messages = MessagesOf(plan, of_ranks);
  return use;
}

std::optional<ScheduleRequest> RequestOf(const Plan& plan) {
  const Schedule& schedule = plan.pipeline->schedule;
  const std::vector<std::string>& names = ScheduleNames();
  if (std::find(names.begin(), names.end(), schedule.name) == names.end()) return std::nullopt;
  const int ranks = static_cast<int>(schedule.ranks.size());
  return ScheduleRequest{schedule.name, ranks, schedule.stages() / ranks, schedule.micro_batches,
                         !schedule.paired.empty()};
}

BubbleParts BubblePartsOf(const Plan& plan, const Prediction& prediction, const PipelineUse& use) {
  const Schedule schedule = ComputationsOf(plan);
  const StageTimes mean = MeanTimes(use.stages);
  const ActionTime own = [&](const Action& action) { return use.stages[action.stage].times.Of(action.kind); };
  BubbleParts parts;
  if (const auto request = RequestOf(plan)) parts.closed_form = ClosedFormBubble(*request, mean);
  parts.equal_stages = MeanBubble(RunSchedule(schedule, mean), {});
  parts.own_times = MeanBubble(RunSchedule(schedule, own), {});
  const ActionTime each = [&](const Action& action) {
    const auto found = use.actions.find(action);
    return found == use.actions.end() ? own(action) : found->second;
  };
  parts.own_actions = MeanBubble(RunSchedule(schedule, each), {});
  const ScheduleTimes with_messages = RunSchedule(schedule, each, use.messages.time);
  parts.with_messages = MeanBubble(with_messages, {});
  parts.with_end = MeanBubble(with_messages, use.tail);
  parts.predicted = prediction.breakdown.bubble;
  return parts;
}

}  // namespace windtunnel
