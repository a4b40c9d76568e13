#include "reports/pipeline_actions.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace windtunnel {

ActionLookup::ActionLookup(const Plan& plan, int pipeline_rank) {
  WT_CHECK(plan.pipeline.has_value());
  const Schedule& schedule = plan.pipeline->schedule;
  micro_batches_ = schedule.micro_batches;
  is_split_.resize(static_cast<size_t>(schedule.stages()) * micro_batches_);
  for (const Action& action : schedule.ranks[pipeline_rank])
    if (action.kind == ActionKind::kInputGradient)
      is_split_[action.stage * micro_batches_ + action.micro_batch] = true;
}

bool ActionLookup::Find(const Op& op, Action& action) const {
  const bool is_message = std::holds_alternative<Send>(op.kind) || std::holds_alternative<Receive>(op.kind);
  const bool is_of_parameters = IsCommunication(op.kind) && !op.parameters.empty();
  if (op.stage < 0 || op.micro_batch < 0 || is_message || is_of_parameters) return false;
  action.stage = op.stage;
  action.micro_batch = op.micro_batch;
  switch (op.phase) {
    case Phase::kForward:
    case Phase::kLoss:
      action.kind = ActionKind::kForward;
      return true;
    case Phase::kRecompute:
    case Phase::kBackward:
      action.kind = is_split_[op.stage * micro_batches_ + op.micro_batch] ? ActionKind::kInputGradient
                                                                          : ActionKind::kBackward;
      return true;
    case Phase::kBackwardWeights:
      action.kind = is_split_[op.stage * micro_batches_ + op.micro_batch] ? ActionKind::kWeightGradient
                                                                          : ActionKind::kBackward;
      return true;
    case Phase::kInitialize:
    case Phase::kGradientSync:
    case Phase::kOptimizer:
    case Phase::kEnd:
      return false;
  }
  return false;
}

std::vector<ActionSpan> ActionSpans(const Plan& plan, const Timeline& timeline) {
  std::vector<ActionSpan> spans;
  if (!plan.pipeline) return spans;
  const ActionLookup lookup(plan, plan.mesh.PlaceOf(timeline.rank).pipeline);
  const Program& program = plan.RoleOf(timeline.rank).steady;
  for (const Span& span : timeline.spans) {
    Action action;
    if (span.stream != kComputeStream || !lookup.Find(program.ops.at(span.op), action)) continue;
    if (spans.empty() || spans.back().action != action) spans.push_back({action, span.start, span.end});
    spans.back().end = span.end;
  }
  return spans;
}

std::vector<WholeActionSpan> WholeActionSpans(const Plan& plan, const Timeline& timeline) {
  using Half = WholeActionSpan::Half;
  std::vector<WholeActionSpan> spans;
  if (!plan.pipeline) return spans;
  const Schedule computations = ComputationsOf(plan);
  std::map<Action, Half> halves;
  for (const std::vector<Action>& actions : computations.ranks) {
    for (size_t i = 0; i + 1 < actions.size(); ++i) {
      if (!computations.paired.contains(actions[i])) continue;
      halves[actions[i]] = Half::kUpper;
      halves[actions[i + 1]] = Half::kLower;
    }
  }
  std::map<Action, size_t> known;
  for (const ActionSpan& span : ActionSpans(plan, timeline)) {
    const auto half = halves.find(span.action);
    const auto [place, is_new] = known.try_emplace(span.action, spans.size());
    if (is_new) spans.push_back({{span}, half == halves.end() ? Half::kNone : half->second});
    spans[place->second].end = span.end;
  }
  return spans;
}

std::vector<const Timeline*> TimelinesByPipelineRank(const Plan& plan,
                                                     const std::vector<Timeline>& timelines) {
  std::vector<const Timeline*> result(plan.mesh.pipeline());
  for (const Timeline& timeline : timelines) {
    const Timeline*& mine = result[plan.mesh.PlaceOf(timeline.rank).pipeline];
    if (!mine || timeline.rank < mine->rank) mine = &timeline;
  }
  return result;
}

std::vector<int> StagesOfRank(const Plan& plan, int pipeline_rank) {
  const std::vector<int>& rank_of_stage = plan.pipeline->schedule.rank_of_stage;
  std::vector<int> stages;
  for (size_t stage = 0; stage < rank_of_stage.size(); ++stage)
    if (rank_of_stage[stage] == pipeline_rank) stages.push_back(static_cast<int>(stage));
  return stages;
}

Schedule ComputationsOf(const Plan& plan) {
  Schedule schedule = plan.pipeline->schedule;
  for (std::vector<Action>& actions : schedule.ranks)
    std::erase_if(actions, [](const Action& action) { return IsCommunication(action.kind); });
  return schedule;
}

std::string ShortRoleName(const Role& role, size_t columns) {
  std::string name = role.name;
  while (name.size() > columns || (name != role.name && name.size() + 3 > columns)) {
    const size_t comma = name.rfind(", ");
    if (comma == std::string::npos) break;
    name.resize(comma);
  }
  return name == role.name ? name : name + ", …";
}

}  // namespace windtunnel
