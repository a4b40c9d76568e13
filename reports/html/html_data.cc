#include "reports/html/html_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "reports/by_role.h"
#include "reports/html/timeline_bars.h"
#include "reports/operator_groups.h"
#include "reports/pipeline_actions.h"
#include "reports/result.h"
#include "reports/version.h"
#include "reports/words.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRanks = 8, kMostPipelineRanks = 4, kMostSpans = 4000, kMostPoints = 600,
                 kMostActions = 6000;

// ---- numbers ----------------------------------------------------------------------------------------------

Json Samples(const std::vector<Duration>& times) {
  Json json = Json::array();
  for (Duration time : times) json.push_back(ToSeconds(time));
  return json;
}

void AddParts(Json& rows, const std::string& side, const std::string& name, const StepBreakdown& breakdown) {
  const std::pair<const char*, Duration> parts[] = {
      {"compute", breakdown.compute},
      {"exposed communication", breakdown.exposed_communication},
      {"bubble", breakdown.bubble},
      {"host", breakdown.host}};
  for (const auto& [part, time] : parts) {
    Json row = {{"side", side}, {"part", part}, {"seconds", ToSeconds(time)}};
    if (!name.empty()) row["name"] = name;
    rows.push_back(row);
  }
}

Json FactsOf(const Outcome& outcome) {
  const Plan& plan = outcome.plan;
  Json facts = {ModelInWords(plan), ParallelismInWords(plan.scenario)};
  if (plan.pipeline) facts.push_back(PipelineInWords(plan));
  facts.push_back(BatchInWords(plan));
  facts.push_back(CostsInWords(outcome));
  if (std::string cluster = ClusterInWords(outcome); !cluster.empty()) facts.push_back(std::move(cluster));
  return facts;
}

// ---- timelines --------------------------------------------------------------------------------------------

// One rank of each role first, then others. Where there are too many roles, the chosen ones are spread evenly
// from the first to the last.
std::vector<const Timeline*> Chosen(const Plan& plan, const std::vector<Timeline>& timelines) {
  std::vector<const Timeline*> first_of_role, others, chosen;
  std::vector<bool> has_role(plan.roles.size());
  for (const Timeline& timeline : timelines) {
    std::vector<bool>::reference known = has_role[plan.role_of_rank[timeline.rank]];
    (known ? others : first_of_role).push_back(&timeline);
    known = true;
  }
  const size_t most = plan.pipeline ? kMostPipelineRanks : kMostRanks;
  const size_t roles = std::min(first_of_role.size(), most);
  for (size_t i = 0; i < roles; ++i)
    chosen.push_back(first_of_role[roles > 1 ? i * (first_of_role.size() - 1) / (roles - 1) : 0]);
  for (size_t i = 0; i < others.size() && chosen.size() < most; ++i) chosen.push_back(others[i]);
  std::sort(chosen.begin(), chosen.end(), [](const auto* a, const auto* b) { return a->rank < b->rank; });
  return chosen;
}

Json TimelineJson(const Plan& plan, const Timeline& timeline, const std::string& side, size_t most) {
  const Role& role = plan.RoleOf(timeline.rank);
  Json json = {{"side", side}, {"rank", timeline.rank}, {"end_s", ToSeconds(timeline.end)}};
  json["lanes"] = Json::array();
  for (const Stream& stream : role.streams) json["lanes"].push_back(stream.name);
  json["spans"] = Json::array();
  for (const TimelineBar& bar : TimelineBars(timeline, role.steady, most)) {
    json["spans"].push_back({{"lane", role.streams[bar.stream].name},
                             {"group", bar.group->name},
                             {"name", bar.name},
                             {"start_s", ToSeconds(bar.start)},
                             {"end_s", ToSeconds(bar.end)},
                             {"busy_s", ToSeconds(bar.busy)}});
  }
  return json;
}

// ---- memory -----------------------------------------------------------------------------------------------

using ByCategory = std::array<int64_t, kCategories>;

// By operator: when its turn came on the device, which is the start of the next operator on the compute
// stream. The last entry is the step's end. (A host that only issues operators allocates far ahead of that.)
std::vector<Duration> TurnsOf(const Role& role, const Timeline& timeline) {
  std::vector<Duration> turns(role.steady.ops.size() + 1, timeline.end);
  for (const Span& span : timeline.spans) {
    if (span.stream == kComputeStream) turns[span.op] = span.start;
  }
  for (size_t op = turns.size(); op-- > 1;) turns[op - 1] = std::min(turns[op - 1], turns[op]);
  return turns;
}

// The device's memory by category after every change. The size of a change is the difference of the allocated
// bytes, so it is rounded as the allocator rounds. What was allocated before the first change follows from
// the categories that `peak` has for the fullest moment.
std::vector<std::pair<Duration, ByCategory>> CurveOf(const Role& role, const Timeline& timeline,
                                                     const MemoryPeak& peak) {
  const std::vector<Duration> turns = TurnsOf(role, timeline);
  std::vector<std::pair<Duration, ByCategory>> curve;
  ByCategory now{};
  Bytes before, most;
  size_t fullest = 0;
  for (const MemorySample& sample : timeline.memory) {
    const MemoryOp& op = role.steady.memory[sample.index];
    const Buffer& buffer = role.buffers[op.buffer];
    if (buffer.space != MemorySpace::kDevice) continue;
    if (curve.empty()) before = sample.allocated;  // the first change's own size becomes part of `base`
    else now[static_cast<int>(buffer.category)] += (sample.allocated - before).count();
    before = sample.allocated;
    if (sample.allocated > most) {
      most = sample.allocated;
      fullest = curve.size();
    }
    curve.emplace_back(timeline.host_computes ? sample.time : turns[op.before], now);
  }
  if (curve.empty()) return curve;
  ByCategory base;
  for (int i = 0; i < kCategories; ++i) base[i] = peak.by_category[i].count() - curve[fullest].second[i];
  for (auto& [time, bytes] : curve) {
    for (int i = 0; i < kCategories; ++i) bytes[i] += base[i];
  }
  return curve;
}

int64_t Sum(const ByCategory& bytes) {
  int64_t sum = 0;
  for (int64_t b : bytes) sum += b;
  return sum;
}

Json MemoryJson(const Role& role, const Timeline& timeline, const MemoryPeak& peak, const std::string& side) {
  const auto curve = CurveOf(role, timeline, peak);
  Json json = {{"side", side}, {"rank", timeline.rank}, {"points", Json::array()}};
  const Duration step = std::max(timeline.end, Picoseconds(1));
  auto column = [&](size_t i) { return static_cast<size_t>(kMostPoints * (curve[i].first / step)); };
  for (size_t first = 0, end; first < curve.size(); first = end) {
    size_t fullest = first;
    for (end = first; end < curve.size() && column(end) == column(first); ++end) {
      if (Sum(curve[end].second) > Sum(curve[fullest].second)) fullest = end;
    }
    Json bytes = Json::object();
    for (int i = 0; i < kCategories; ++i)
      bytes[std::string(Name(static_cast<Category>(i)))] = curve[fullest].second[i];
    json["points"].push_back({{"time_s", ToSeconds(curve[fullest].first)}, {"bytes", bytes}});
  }
  return json;
}

const MemoryPeak* PeakOf(const Outcome& outcome, const Timeline& timeline, bool predicted) {
  if (predicted) return &PredictedMemoryOf(*outcome.prediction, timeline.rank).steady;
  for (const MeasuredMemory& memory : outcome.measurement->memory) {
    if (memory.rank == timeline.rank) return &memory.steady;
  }
  return nullptr;
}

std::string_view WordOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kInputGradient:
      return "input gradient";
    case ActionKind::kWeightGradient:
      return "weight gradient";
    default:
      return "backward";
  }
}

// Adds the schedule as it ran, of one rank for each place in the pipeline; nothing if there are too many
// actions to tell apart.
void AddActions(const Plan& plan, const std::vector<Timeline>& timelines, const std::string& side,
                Json& actions) {
  if (!plan.pipeline) return;
  std::vector<std::pair<int, std::vector<WholeActionSpan>>> by_rank;  // of the world, as in timelines
  size_t count = 0;
  for (const Timeline* timeline : TimelinesByPipelineRank(plan, timelines)) {
    if (timeline == nullptr) continue;
    by_rank.emplace_back(timeline->rank, WholeActionSpans(plan, *timeline));
    count += by_rank.back().second.size();
  }
  if (count > kMostActions) return;
  for (const auto& [rank, spans] : by_rank) {
    for (const WholeActionSpan& span : spans)
      actions.push_back({{"side", side},
                         {"rank", rank},
                         {"kind", WordOf(span.action.kind)},
                         {"stage", span.action.stage},
                         {"micro_batch", span.action.micro_batch},
                         {"half", static_cast<int>(span.half)},
                         {"start_s", ToSeconds(span.start)},
                         {"end_s", ToSeconds(span.end)}});
  }
}

void AddSide(const Outcome& outcome, const std::vector<Timeline>& timelines, bool predicted, Json& json) {
  const std::string side = predicted ? "predicted" : "measured";
  const auto chosen = Chosen(outcome.plan, timelines);
  for (const Timeline* timeline : chosen) {
    json["timelines"].push_back(TimelineJson(outcome.plan, *timeline, side, kMostSpans / chosen.size()));
    const MemoryPeak* peak = PeakOf(outcome, *timeline, predicted);
    if (peak != nullptr && !timeline->memory.empty())
      json["memory"].push_back(MemoryJson(outcome.plan.RoleOf(timeline->rank), *timeline, *peak, side));
  }
  AddActions(outcome.plan, timelines, side, json["actions"]);
  const auto& by_rank = predicted ? outcome.prediction->by_rank : outcome.measurement->by_rank;
  for (const RoleTime& time : TimeByRole(outcome.plan, by_rank))
    AddParts(json["roles"], side, time.name, time.breakdown);
}

Json ScalingJson(const Scaling& scaling) {
  Json points = Json::array();
  for (const ScalingPoint& point : scaling.points)
    points.push_back({{"devices", point.devices},
                      {"step_time_s", ToSeconds(point.step_time)},
                      {"tokens_per_s", point.tokens_per_s}});
  return {{"points", points}, {"note", scaling.note}};
}

}  // namespace

nlohmann::ordered_json HtmlData(const Outcome& outcome, const Scaling& scaling) {
  const Scenario& scenario = outcome.plan.scenario;
  Json json = {{"title", scenario.name}, {"description", scenario.description}, {"facts", FactsOf(outcome)}};
  json["version"] = kVersion;
  json["unit"] = TokenWord(scenario);
  json["result"] = Json::parse(ResultJsonOf(outcome));
  for (const char* key : {"breakdown", "roles", "groups", "timelines", "actions", "memory"})
    json[key] = Json::array();
  json["samples"] = Json::object();
  for (const OperatorGroup& group : OperatorGroups())
    json["groups"].push_back({{"name", group.name}, {"colour", group.colour}});
  if (outcome.prediction) {
    json["samples"]["predicted"] = Samples(outcome.prediction->step_times);
    AddParts(json["breakdown"], "predicted", "", outcome.prediction->breakdown);
    AddSide(outcome, outcome.prediction->timelines, true, json);
  }
  if (outcome.measurement) {
    json["samples"]["measured"] = Samples(outcome.measurement->step_times);
    AddParts(json["breakdown"], "measured", "", outcome.measurement->breakdown);
    AddSide(outcome, outcome.measurement->timelines, false, json);
  }
  json["scaling"] = ScalingJson(scaling);
  json["sources"] = outcome.profile.hardware ? outcome.profile.hardware->sources : outcome.profile.libraries;
  json["scenario"] = ResolvedYaml(scenario);
  return json;
}

}  // namespace windtunnel
