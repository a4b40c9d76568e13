#include "reports/explain.h"

#include <charconv>
#include <memory>
#include <optional>
#include <string>

#include "base/parallel.h"
#include "cli/commands.h"
#include "cli/costs.h"
#include "cli/load_plan.h"
#include "cli/notes.h"
#include "cli/outcomes.h"
#include "cli/paths.h"
#include "cli/terminal.h"
#include "cost_models/cost_model.h"
#include "plan/balance.h"
#include "plan/schedule_csv.h"
#include "reports/explain_pipeline.h"
#include "reports/outcome.h"
#include "reports/questions.h"
#include "reports/units.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

// The memory that a rank may use: the device's, or on a CPU the rank's share of the machine's.
Result<std::optional<Capacity>> CapacityOf(const Plan& plan, const Costs& costs,
                                           const Prediction& prediction) {
  if (prediction.device_memory > Bytes(0)) return Capacity{prediction.device_memory, "the device's memory"};
  auto memory = costs.profile.machine.find("memory_bytes");
  if (memory == costs.profile.machine.end()) return std::nullopt;
  const std::string& text = memory->second;
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || end != text.data() + text.size() || bytes <= 0)
    return InvalidInput("{}: machine.memory_bytes is '{}', expected a number of bytes", costs.path, text);
  const int64_t ranks = std::max<int64_t>(plan.scenario.cluster.devices_per_node, 1);
  return Capacity{Bytes(bytes) / ranks, ranks > 1 ? fmt::format("the machine's memory over {} ranks", ranks)
                                                  : "the machine's memory"};
}

// Needs no measured costs, but a device that is known, or none (a CPU).
Result<std::string> ExplainMemoryAlone(const Options& options, const Plan& plan, Ink ink) {
  WT_ASSIGN_OR_RETURN(const Costs costs, FindCosts(options, plan));
  if (!costs.profile.hardware) return ExplainMemory(plan, Bytes::Max(), MemoryDetail::kAll, ink);
  const std::unique_ptr<CostModel> model = MakeProfileCostModel(costs.profile, plan);
  WT_ASSIGN_OR_RETURN(const Prediction prediction, PredictMemory(plan, *model));
  WT_ASSIGN_OR_RETURN(std::string text,
                      ExplainMemory(plan, RoomForAllocator(plan, *model), MemoryDetail::kAll, ink));
  WT_ASSIGN_OR_RETURN(const std::optional<Capacity> capacity, CapacityOf(plan, costs, prediction));
  if (capacity) text += "\n" + DescribeFit(prediction, *capacity);
  return text;
}

Status PrintSchedule(const Scenario& scenario) {
  if (scenario.parallel.pipeline.size == 1)
    return InvalidInput(
        "parallel.pipeline.size is 1, expected at least 2: without a pipeline there is no schedule");
  WT_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleOf(scenario));
  return Print(PrintScheduleCsv(schedule));
}

// Where time and memory go, unless quiet, and what else one would ask.
Status PrintAll(const Options& options, const Scenario& scenario, const Costs& costs,
                const Outcome& outcome) {
  const Ink ink = StandardInk();
  const Plan& plan = outcome.plan;
  const Prediction& prediction = *outcome.prediction;
  const PredictPlan predict = [&](const Plan& variant) {
    return PredictFrom(costs, variant, options.fold, Cores());
  };
  const std::unique_ptr<CostModel> model = MakeProfileCostModel(costs.profile, plan);
  WT_ASSIGN_OR_RETURN(const std::optional<Capacity> capacity, CapacityOf(plan, costs, prediction));
  WT_ASSIGN_OR_RETURN(const std::string collectives, ExplainCollectives(plan, prediction, *model, ink));
  WT_ASSIGN_OR_RETURN(const std::string memory,
                      ExplainMemory(plan, RoomForAllocator(plan, *model), MemoryDetail::kLargest, ink));
  if (!options.quiet)
    WT_RETURN_IF_ERROR(Print(ExplainTime(plan, prediction, ink) + collectives +
                             ExplainPipeline(plan, prediction, ink) + ExplainUnits(plan, prediction, ink) +
                             ExplainBuckets(plan, ink) + memory));
  const CompileScenario compile = [&](const Scenario& variant) {
    return CompilePlan(WithBalance(variant, costs), {.threads = Cores(), .predicts = true});
  };
  return Print(AnswerQuestions(scenario, plan, prediction, capacity, compile, predict, ink));
}

}  // namespace

Result<int> ExplainCommand(const Options& options) {
  WT_RETURN_IF_ERROR(CheckReports(options));
  WT_ASSIGN_OR_RETURN(Scenario scenario, LoadWithOverrides(options, options.files.front()));
  NoteKeysWithoutEffect(options, scenario);
  if (options.resolved) {
    WT_RETURN_IF_ERROR(Print(ResolvedYaml(scenario)));
    return 0;
  }
  if (options.schedule) {
    WT_RETURN_IF_ERROR(PrintSchedule(scenario));
    return 0;
  }
  // With all operators, so that the report can name what the allocations at a peak are for.
  WT_ASSIGN_OR_RETURN(Plan compiled, CompileBalanced(options, scenario, PlanFor::kRun));
  if (options.memory) {
    WT_ASSIGN_OR_RETURN(const std::string memory, ExplainMemoryAlone(options, compiled, StandardInk()));
    WT_RETURN_IF_ERROR(Print(memory));
    return 0;
  }
  WT_ASSIGN_OR_RETURN(const Costs costs, FindCosts(options, compiled));
  std::vector<Outcome> outcomes(1);
  WT_ASSIGN_OR_RETURN(outcomes[0], PredictOutcome(options, costs, std::move(compiled)));
  WT_RETURN_IF_ERROR(WriteReports(options, outcomes));
  if (PrintsAnOutput(options)) return 0;
  WT_RETURN_IF_ERROR(PrintAll(options, scenario, costs, outcomes[0]));
  return 0;
}

}  // namespace windtunnel
