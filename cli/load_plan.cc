#include "cli/load_plan.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/parallel.h"
#include "cli/costs.h"
#include "cli/notes.h"
#include "cli/outputs.h"
#include "cost_models/device_spec.h"
#include "plan/outline.h"
#include "runtime/data.h"
#include "runtime/live.h"
#include "scenarios/key_places.h"
#include "scenarios/load.h"

namespace windtunnel {

bool JoinsJob(const Options& options) {
  return options.command == Command::kRun && !NamesNodes(options) && IsRankOfJob();
}

Result<std::vector<Override>> OverridesOf(const Options& options) {
  std::vector<Override> overrides;
  std::optional<Error> error;
  for (const std::string& set : options.sets) {
    Result<Override> parsed = ParseOverride(set);
    if (parsed) overrides.push_back(*std::move(parsed));
    else if (!error) error = std::move(parsed).error();
    else error->others.push_back(std::move(parsed).error().message);
  }
  if (error) return tl::unexpected(*std::move(error));
  if (options.seed) overrides.push_back({"run.seed", std::to_string(*options.seed)});
  return overrides;
}

Result<Scenario> LoadWithOverrides(const Options& options, const std::string& file) {
  WT_ASSIGN_OR_RETURN(const std::vector<Override> overrides, OverridesOf(options));
  // With the costs of another device, a scenario of this machine becomes one of that device.
  WT_ASSIGN_OR_RETURN(Scenario scenario,
                      LoadScenario(file, overrides, EmbeddedProfile(options.profile) ? options.profile : ""));
  WT_RETURN_IF_ERROR(CheckOutputsAgainst(scenario, options));
  return scenario;
}

Result<Plan> CompileBalanced(const Options& options, Scenario scenario, PlanFor what) {
  // Ranks that another launcher starts must agree on the balance, although they may have different costs at
  // hand.
  if (scenario.parallel.pipeline.size > 1 && !JoinsJob(options)) {
    if (const auto costs = FindCosts(options, OutlineOf(scenario)))
      scenario = WithBalance(std::move(scenario), *costs);
  }
  return CompilePlan(
      scenario,
      {.evaluates = options.evaluate, .threads = Cores(), .predicts = what == PlanFor::kPrediction});
}

Result<Plan> LoadPlan(const Options& options, const std::string& file, PlanFor what) {
  WT_ASSIGN_OR_RETURN(Scenario scenario, LoadWithOverrides(options, file));
  if (!JoinsJob(options) || IsFirstRankOfJob()) {
    NoteKeysWithoutEffect(options, scenario);
    if (what == PlanFor::kRun) NoteWhatIfs(options, scenario);
  }
  Result<Plan> plan = CompileBalanced(options, std::move(scenario), what);
  if (!plan) return tl::unexpected(Placed(options, file, plan.error()));
  return plan;
}

Status CheckData(const Options& options, const Plan& plan) {
  const auto data = MakeDataSource(plan.scenario);
  if (data) return Ok();
  return tl::unexpected(Placed(options, plan.scenario.source_file, data.error()));
}

Error Placed(const Options& options, const std::string& file, Error error) {
  const auto overrides = OverridesOf(options);
  if (error.kind == ErrorKind::kFailed || !overrides) return error;
  const std::string place = PlaceOfMessage(error.message, file, *overrides);
  if (!place.empty()) error.message = fmt::format("{}: {}", place, error.message);
  return error;
}

}  // namespace windtunnel
