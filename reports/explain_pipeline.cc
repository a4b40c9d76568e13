#include "reports/explain_pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/format.h"
#include "plan/model.h"
#include "plan/schedule_bubble.h"
#include "plan/schedule_check.h"
#include "reports/by_role.h"
#include "reports/pipeline_actions.h"
#include "reports/pipeline_bubble.h"
#include "reports/words.h"

namespace windtunnel {
namespace {

constexpr size_t kListedRows = 24;  // of stages or ranks: half of them first, half of them last

std::string Share(Duration part, Duration whole) { return FormatPercent(ShareOf(part, whole)); }

std::string Range(int64_t first, int64_t end) {
  return end - first > 1 ? fmt::format("{}-{}", first, end - 1) : std::to_string(first);
}

// Neighbouring rows of equal `text` share one row, whose first columns give the range.
struct Row {
  int64_t first = 0, end = 0;  // stages, or pipeline ranks
  std::string text;
};

std::vector<Row> Folded(const std::vector<Row>& rows) {
  std::vector<Row> folded;
  for (const Row& row : rows) {
    if (!folded.empty() && folded.back().text == row.text) folded.back().end = row.end;
    else folded.push_back(row);
  }
  return folded;
}

// `name` gives the first columns of a row.
template <typename Name>
std::string Listed(const std::vector<Row>& rows, const Name& name) {
  const std::vector<Row> folded = Folded(rows);
  std::string text;
  for (size_t i = 0; i < folded.size(); ++i) {
    const bool is_middle =
        folded.size() > kListedRows && i >= kListedRows / 2 && i + kListedRows / 2 < folded.size();
    if (!is_middle) text += "  " + name(folded[i]) + folded[i].text + "\n";
    else if (i == kListedRows / 2) text += fmt::format("  … and {} more\n", folded.size() - kListedRows);
  }
  return text;
}

// Parameter elements that a stage holds, tied ones included.
int64_t ParametersOf(const Plan& plan, const StageRange& range) {
  Role role;
  MakeModel(plan.scenario, range)->Register(role);
  int64_t elements = 0;
  for (const Parameter& parameter : role.parameters) elements += parameter.elements;
  return elements;
}

std::string DescribeStages(const Plan& plan, const PipelineUse& use, Ink ink) {
  const std::vector<StageRange>& ranges = plan.pipeline->stages;
  const bool is_split = std::any_of(use.stages.begin(), use.stages.end(),
                                    [](const StageUse& stage) { return stage.has_split; });
  std::vector<Row> rows;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const StageTimes& times = use.stages[i].times;
    std::string text = fmt::format("{:>8}{:>12}{:>12}", ranges[i].end - ranges[i].first,
                                   FormatCount(static_cast<double>(ParametersOf(plan, ranges[i]))),
                                   FormatTime(times.forward));
    if (is_split)
      text +=
          fmt::format("{:>16}{:>17}", FormatTime(times.input_gradient), FormatTime(times.weight_gradient));
    else text += fmt::format("{:>12}", FormatTime(times.backward()));
    rows.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i) + 1, text});
  }
  std::string header =
      fmt::format("  {:<10}{:<12}{:>8}{:>12}{:>12}", "stage", "layers", "each", "parameters", "forward");
  header += is_split ? fmt::format("{:>16}{:>17}", "input gradient", "weight gradient")
                     : fmt::format("{:>12}", "backward");
  return ink.Dim(header + "   (a micro-batch)") + "\n" + Listed(rows, [&](const Row& row) {
           const int64_t first = ranges[row.first].first, end = ranges[row.end - 1].end;
           return fmt::format("{:<10}{:<12}", Range(row.first, row.end),
                              first == end ? "none" : Range(first, end));
         });
}

// By pipeline rank: the work of all its stages on one micro-batch.
std::vector<Duration> WorkByRank(const Plan& plan, const PipelineUse& use) {
  std::vector<Duration> work(plan.mesh.pipeline());
  for (size_t stage = 0; stage < use.stages.size(); ++stage)
    work[plan.pipeline->schedule.rank_of_stage[stage]] += use.stages[stage].times.all();
  return work;
}

std::string DescribeBalance(const Plan& plan, const PipelineUse& use) {
  const std::vector<Duration> work = WorkByRank(plan, use);
  Duration sum;
  for (Duration one : work) sum += one;
  const auto slowest = std::max_element(work.begin(), work.end());
  const double excess = sum > Duration() ? *slowest / (sum / static_cast<int64_t>(work.size())) - 1 : 0;
  return fmt::format("  slowest: {}, {} a micro-batch, {:.1f} % above the mean of the ranks\n",
                     plan.roles[slowest - work.begin()].name, FormatTime(*slowest), 100 * excess);
}

std::string DescribeRanks(const Plan& plan, const Prediction& prediction, const PipelineUse& use, Ink ink) {
  const std::vector<int64_t> held = ActivationsInFlight(ComputationsOf(plan));
  const auto request = RequestOf(plan);
  const std::vector<Duration> work = WorkByRank(plan, use);
  std::vector<Duration> bubbles(plan.roles.size());
  for (const RoleTime& time : TimeByRole(plan, prediction.by_rank))
    bubbles[plan.role_of_rank[time.ranks.front()]] = time.breakdown.bubble;
  std::vector<Row> rows;
  for (int rank = 0; rank < plan.mesh.pipeline(); ++rank) {
    const std::string promised =
        request ? std::to_string(PromisedActivationsInFlight(*request, rank)) : "not known";
    rows.push_back({rank, rank + 1,
                    fmt::format("{:>14}{:>14}{:>12}{:>8}{:>11}{:>14}", FormatTime(work[rank]),
                                FormatTime(use.tail[rank]), FormatTime(bubbles[rank]), held[rank], promised,
                                FormatBytes(prediction.memory[rank].steady.allocated))});
  }
  std::string text =
      ink.Dim(fmt::format("  {:<26}{:>14}{:>14}{:>12}{:>8}{:>11}{:>14}", "ranks", "a micro-batch",
                          "end of step", "bubble", "held", "promised", "peak memory")) +
      "\n";
  text += Listed(rows, [&](const Row& row) {
    std::vector<int> ranks;
    for (int64_t role = row.first; role < row.end; ++role)
      ranks.insert(ranks.end(), plan.roles[role].ranks.begin(), plan.roles[role].ranks.end());
    std::sort(ranks.begin(), ranks.end());
    const std::string name = row.end - row.first == 1 ? ShortRoleName(plan.roles[row.first], 12) : "";
    return fmt::format("{:<13} {:<12}", RankRanges(ranks), name);
  });
  return text +
         ink.Dim(
             "  held: the most pairs of a stage and a micro-batch whose activations a rank keeps at "
             "once; promised: by the\n  schedule's authors; end of step: gradients and the optimizer") +
         "\n";
}

// The formula of ClosedFormBubble (plan/schedule_bubble.h) as text; empty if there is none.
std::string Formula(const std::string& schedule, bool is_paired) {
  if (is_paired) return schedule == "dualpipe_v" ? "(p-1) (F+2B-3W) where F = I = W" : "";
  if (schedule == "none") return "m (p-1) (F+B)";
  if (schedule == "gpipe" || schedule == "1f1b") return "(p-1) (F+B)";
  if (schedule == "interleaved" || schedule == "looped_bfs") return "(p-1 + (v-1) max(0, p-m)) (F+B)";
  if (schedule == "zb_h1") return "(p-1) max(F+I-W, F, I), from m = p on";
  if (schedule == "zb_v") return "(p-1) F where F = I = W, from m = 3p/2 on";
  if (schedule == "dualpipe_v") return "(p-1) F where F = I = W";
  return "";
}

std::string DescribeClosedForm(const Plan& plan, const BubbleParts& parts) {
  const auto request = RequestOf(plan);
  if (!request) return "  closed form: none, the schedule is from a file\n";
  const std::string formula = Formula(request->name, request->is_paired);
  if (formula.empty())
    return "  closed form: none for forwards and backwards in pairs, so the schedule was run\n";
  const std::string text = fmt::format("  closed form: {} with p = {}, v = {}, m = {}", formula,
                                       request->ranks, request->virtual_stages, request->micro_batches);
  if (!parts.closed_form) return text + ": not the case here, so the schedule was run\n";
  return text + fmt::format(": {} with the mean stage's times\n", FormatTime(*parts.closed_form));
}

std::string DescribeMessages(const MessageUse& use, int64_t replicas) {
  if (use.count == 0) return "  messages: none\n";
  return fmt::format("  messages: {} a step{} of at most {}, {} each\n", use.count,
                     replicas > 1 ? " and replica" : "", FormatBytes(use.bytes), FormatTime(use.time));
}

std::string DescribeBubble(const Plan& plan, const Prediction& prediction, const PipelineUse& use, Ink ink) {
  const BubbleParts parts = BubblePartsOf(plan, prediction, use);
  const Duration step = prediction.breakdown.step;
  auto row = [&](const char* label, Duration part, bool is_sum) {
    const std::string sign = is_sum || part < Duration() ? "" : "+";
    return fmt::format("  {:<42}{:>12}{:>10}\n", label,
                       (part < Duration() ? "-" : sign) + FormatTime(part < Duration() ? -part : part),
                       Share(part, step));
  };
  std::string text = "\n" + ink.Bold("where the bubble comes from") +
                     ink.Dim("   mean over ranks, share of the step") + "\n";
  text += row("equal stages, free messages", parts.equal_stages, true);
  text += row("stages that take different times", parts.own_times - parts.equal_stages, false);
  // With replicas, first forwards wait for parameters, and GEMMs are slower beside gathers and reductions.
  text += row(plan.mesh.copies() > 1 ? "passes beside, or awaiting, collectives"
                                     : "micro-batches that take different times",
              parts.own_actions - parts.own_times, false);
  text += row("messages", parts.with_messages - parts.own_actions, false);
  text += row("the optimizer and gradients' collectives", parts.with_end - parts.with_messages, false);
  text += row("the rest: dispatch, contention, spread", parts.predicted - parts.with_end, false);
  text += row("predicted", parts.predicted, true);
  return text + DescribeClosedForm(plan, parts) + DescribeMessages(use.messages, plan.mesh.copies());
}

}  // namespace

std::string ExplainPipeline(const Plan& plan, const Prediction& prediction, Ink ink) {
  if (!plan.pipeline || prediction.timelines.empty()) return "";
  const PipelineUse use = PipelineUseOf(plan, prediction.timelines);
  const Schedule& schedule = plan.pipeline->schedule;
  return "\n" + ink.Bold("pipeline") +
         fmt::format("  {}, {}, {}\n", schedule.name, PipelineInWords(plan),
                     Counted(schedule.micro_batches, "micro-batch")) +
         DescribeStages(plan, use, ink) + DescribeBalance(plan, use) + "\n" +
         DescribeRanks(plan, prediction, use, ink) + DescribeBubble(plan, prediction, use, ink);
}

}  // namespace windtunnel
