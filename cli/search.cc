#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/read_file.h"
#include "cli/commands.h"
#include "cli/costs.h"
#include "cli/elapsed.h"
#include "cli/interrupts.h"
#include "cli/load_plan.h"
#include "cli/notes.h"
#include "cli/outcomes.h"
#include "cli/paths.h"
#include "cli/search_run.h"
#include "cli/search_selection.h"
#include "cli/search_state.h"
#include "cli/terminal.h"
#include "cost_models/cost_model.h"
#include "plan/outline.h"
#include "plan/plan.h"
#include "reports/html/html_report.h"
#include "reports/search_report.h"
#include "reports/version.h"
#include "reports/words.h"
#include "scenarios/characters.h"
#include "scenarios/framework_doubts.h"
#include "scenarios/load.h"
#include "sim/composed/composed_step.h"
#include "sim/search/evaluator.h"
#include "sim/search/space.h"

namespace windtunnel {
namespace {

// Why `configuration` cannot be predicted, with the command that measures its costs if these are missing.
std::string WithCommand(const std::string& reason, const Costs& costs, const Scenario& scenario,
                        const Configuration& configuration, const std::vector<Override>& given) {
  if (costs.profile.hardware) return reason;
  const Scenario made = ScenarioOf(scenario, configuration);
  const auto plan = CompilePlan(made, {.predicts = true});
  if (!plan || FindMissingCosts(costs.profile, *plan).empty()) return reason;
  const auto overrides = OverridesFor(given, made, scenario);
  if (!overrides) return reason;
  std::string sets;
  for (const Override& override : *overrides)
    sets += " --set " + ShellWord(override.key + "=" + override.value);
  return fmt::format("{}: {}", reason, HowToGetCosts(costs, *plan, sets));
}

// `explain` is WithCommand. It is asked once for each reason: of the first configuration that has it.
void Count(const SearchSpace& space, const std::vector<Evaluation>& evaluations,
           const std::function<std::string(const std::string& reason, const Configuration&)>& explain,
           SearchReport& report) {
  std::map<std::string, std::string> explained;
  report.combinations = space.combinations;
  report.legal = static_cast<int64_t>(space.legal.size());
  report.illegal = space.illegal;
  for (size_t i = 0; i < evaluations.size(); ++i) {
    const Evaluation& evaluation = evaluations[i];
    switch (evaluation.outcome) {
      case Evaluation::Outcome::kFeasible:
        ++report.evaluated;
        break;
      case Evaluation::Outcome::kInfeasible:
        ++report.infeasible;
        break;
      case Evaluation::Outcome::kRefused: {
        const auto [known, is_new] = explained.try_emplace(evaluation.reason);
        if (is_new) known->second = explain(evaluation.reason, space.legal[i]);
        ++report.refused[known->second];
        break;
      }
    }
  }
}

// The memory known of configurations that do not fit is a lower bound. In ascending order of bounds, their
// actual peaks are followed until no bound is below the least peak.
std::optional<SearchReport::Least> FindLeast(const Scenario& scenario, const Profile& profile,
                                             const SearchSpace& space,
                                             const std::vector<Evaluation>& evaluations) {
  std::vector<size_t> infeasible;
  for (size_t i = 0; i < evaluations.size(); ++i)
    if (evaluations[i].outcome == Evaluation::Outcome::kInfeasible) infeasible.push_back(i);
  std::stable_sort(infeasible.begin(), infeasible.end(),
                   [&](size_t a, size_t b) { return evaluations[a].memory < evaluations[b].memory; });
  const Evaluator evaluator(scenario, profile, {.follows_peaks = true});
  std::optional<SearchReport::Least> least;
  for (const size_t i : infeasible) {
    if (least && evaluations[i].memory >= least->memory) break;
    const Bytes memory = evaluator.Evaluate(space.legal[i]).memory;
    if (!least || memory < least->memory) least = {memory, Describe(space.legal[i])};
  }
  return least;
}

// Measured costs cover only what was measured. If they can predict neither the first configuration nor the
// scenario itself, the search stops: each configuration would be compiled, which takes long with many ranks,
// and then refused.
Status CheckCosts(const Costs& costs, const Scenario& scenario, const Configuration& first,
                  const std::vector<Override>& given) {
  if (costs.profile.hardware) return Ok();
  const Evaluation evaluation = Evaluator(scenario, costs.profile).Evaluate(first);
  if (evaluation.outcome != Evaluation::Outcome::kRefused) return Ok();
  const auto own = CompilePlan(WithBalance(scenario, costs), {.predicts = true});
  if (own && PredictFrom(costs, *own)) return Ok();
  return InvalidInput(
      "cluster.device is '{}', whose profile {} can predict neither the scenario nor the first configuration "
      "({}), expected a device with a datasheet, such as {}, or measured costs: {}",
      scenario.cluster.device, costs.profile.name, Describe(first), kDeviceNotAtHand,
      WithCommand(evaluation.reason, costs, scenario, first, given));
}

// The most frequent reason why configurations cannot be trained.
std::string MainReason(const SearchReport& report) {
  const auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::max_element(report.refused.begin(), report.refused.end(), by_count);
  if (most == report.refused.end() || most->second < report.infeasible)
    return fmt::format("{} need more memory than the device has", report.infeasible + report.fragmented);
  return fmt::format("{} cannot be predicted: {}", most->second, most->first);
}

// Identifies what a state file is for: the scenario with its ranges and derived keys, the costs, and the
// files that both name.
std::string StateKey(const SearchReport& report, const Scenario& scenario, const Profile& profile) {
  const DerivedKeys& derived = scenario.derived;
  std::string behind;
  for (bool is_derived : {derived.kind, derived.sync, derived.reshard_after_forward, derived.shard_size,
                          derived.virtual_stages, derived.reduce})
    behind += is_derived ? '1' : '0';
  if (profile.framework) behind += " " + profile.framework->digest;
  std::vector<std::string> files = scenario.search->schedule;
  files.push_back(scenario.parallel.pipeline.schedule);
  std::erase_if(files, [](const std::string& schedule) { return !schedule.ends_with(".csv"); });
  for (const std::string& file : files) {
    const auto text = ReadFile(file, "a schedule");
    behind += " " + (text ? Sha256Hex(*text) : "missing");
  }
  return fmt::format("{} {} {} {}", report.scenario_digest, report.profile_digest, kVersion,
                     Sha256Hex(behind));
}

// The overrides of the command line, except those of ranges.
Result<std::vector<Override>> GivenOverrides(const Options& options) {
  WT_ASSIGN_OR_RETURN(std::vector<Override> given, OverridesOf(options));
  std::erase_if(given, [](const Override& override) {
    return override.key == "search" || override.key.starts_with("search.");
  });
  return given;
}

// Includes the best configuration's whole report, if it was predicted in full.
Status WriteHtml(const Options& options, const Costs& costs, const SearchReport& report) {
  std::vector<Outcome> best;
  if (!report.pareto.empty() && report.pareto.front().predicted.is_in_full()) {
    Outcome& outcome = best.emplace_back();
    WT_ASSIGN_OR_RETURN(outcome.plan, CompilePlan(report.pareto.front().scenario, {.predicts = true}));
    outcome.profile = costs.profile;
    WT_ASSIGN_OR_RETURN(outcome.prediction, PredictFrom(costs, outcome.plan));
  }
  return WriteText(options.html, SearchHtmlReport(SearchJson(report), best, ScalingsOf(best)));
}

template <typename T>
bool Has(const std::vector<T>& values, T value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Whether the files of schedules that the search would try can be read.
Status CheckScheduleFiles(const Scenario& scenario) {
  const std::vector<std::string>& searched = scenario.search->schedule;
  const std::vector<std::string> own = {scenario.parallel.pipeline.schedule};
  for (const std::string& schedule : searched.empty() ? own : searched) {
    if (!schedule.ends_with(".csv")) continue;
    const std::string_view key = searched.empty() ? "parallel.pipeline.schedule" : "search.schedule";
    const auto text = ReadFile(schedule, "a pipeline's schedule");
    if (!text) return InvalidInput("{}: {}", key, text.error().message);
  }
  return Ok();
}

// What in the search cannot be composed (sim/composed/composed_step.h) and takes long instead.
std::vector<std::string> SlowSteps(const Scenario& scenario, const SearchSpace& space) {
  std::vector<std::string> slow;
  if (scenario.model.kind != ModelKind::kTransformer) return slow;  // a model of few operators
  for (const Configuration& configuration : space.legal) {
    const Status composable = CheckComposable(ScenarioOf(scenario, configuration));
    if (!composable && !Has(slow, composable.error().message)) slow.push_back(composable.error().message);
  }
  return slow;
}

// What the scenario's framework does not run of the configurations that are reported. What is so of the
// scenario itself has been said.
void NoteDoubts(const Options& options, const Scenario& scenario, const SearchReport& report) {
  std::vector<std::string> said = FrameworkDoubts(scenario);
  for (const std::vector<FoundConfiguration>* list : {&report.top, &report.pareto}) {
    for (const FoundConfiguration& found : *list) {
      for (const std::string& line : FrameworkDoubts(found.scenario)) {
        if (Has(said, line)) continue;
        Note(options, "of these configurations: " + line);
        said.push_back(line);
      }
    }
  }
}

// The legal configurations. Stages are balanced by the costs, if these are known.
Result<SearchSpace> SpaceFor(const Scenario& scenario, const Costs& costs) {
  const ChooseStages choose = [&](const Scenario& unbalanced) -> Result<std::vector<int64_t>> {
    const Scenario balanced = WithBalance(unbalanced, costs);
    if (balanced.parallel.pipeline.balance.empty()) return StagesByRoughCosts(unbalanced);
    return balanced.parallel.pipeline.balance;
  };
  return EnumerateSpace(scenario, choose, IsInterrupted);
}

// The report as it is before any configuration is evaluated.
SearchReport ReportOf(const Options& options, const Scenario& scenario, const Costs& costs) {
  SearchReport report;
  report.scenario = scenario.name;
  report.scenario_digest = ScenarioDigest(scenario);
  report.profile = costs.profile.name;
  report.profile_digest = ProfileDigest(costs.profile);
  if (costs.profile.hardware) report.device_memory = costs.profile.hardware->memory;
  Plan outline = OutlineOf(scenario);
  outline.model = StatisticsOf(scenario);
  report.subject = {ModelInWords(outline), SearchInWords(outline, costs.profile.name)};
  report.profile_option = options.profile;
  report.framework_option = options.framework_profile;
  return report;
}

// The file comes first: whoever reads the table may stop reading, and a closed pipe ends this process.
Status Show(const Options& options, const Costs& costs, const SearchReport& report) {
  if (!options.json.empty()) WT_RETURN_IF_ERROR(WriteText(options.json, SearchJson(report)));
  if (!PrintsAnOutput(options)) {
    const Ink ink = StandardInk();
    WT_RETURN_IF_ERROR(
        Print(options.quiet ? SearchVerdict(report, ink) : SearchTable(report, options.verbose, ink)));
  }
  return options.html.empty() ? Ok() : WriteHtml(options, costs, report);
}

}  // namespace

Result<int> SearchCommand(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  InterruptGuard guard;
  WT_RETURN_IF_ERROR(CheckReports(options));
  WT_ASSIGN_OR_RETURN(const Scenario scenario, LoadWithOverrides(options, options.files.front()));
  WT_RETURN_IF_ERROR(CheckRanges(scenario));
  WT_RETURN_IF_ERROR(CheckScheduleFiles(scenario));
  WT_ASSIGN_OR_RETURN(const Costs costs, FindCosts(options, OutlineOf(scenario)));
  NoteCosts(options, costs, scenario);
  WT_ASSIGN_OR_RETURN(const SearchSpace space, SpaceFor(scenario, costs));
  if (const std::vector<std::string> slow = SlowSteps(scenario, space); !slow.empty())
    Note(options,
         fmt::format("predicted operator by operator, which takes up to seconds for each configuration "
                     "of a large model: {}",
                     fmt::join(slow, ", ")));
  WT_ASSIGN_OR_RETURN(std::vector<Override> given, GivenOverrides(options));
  WT_RETURN_IF_ERROR(CheckCosts(costs, scenario, space.legal.front(), given));
  SearchReport report = ReportOf(options, scenario, costs);
  const std::string key = options.state.empty() ? "" : StateKey(report, scenario, costs.profile);
  WT_ASSIGN_OR_RETURN(SharedState state, SharedState::Open(options.state, key, space.legal.size()));
  SearchRun run(options, scenario, space, costs.profile);
  WT_RETURN_IF_ERROR(run.Run(state));
  if (state.process().rank > 0) return 0;  // the first process reports
  WT_RETURN_IF_ERROR(run.Gather(state));
  const auto explain = [&](const std::string& reason, const Configuration& configuration) {
    return WithCommand(reason, costs, scenario, configuration, given);
  };
  Count(space, run.evaluations(), explain, report);
  report.resumed = run.resumed();
  report.configurations_per_s = run.configurations_per_s();
  report.configurations_per_cpu_s = run.configurations_per_cpu_s();
  report.wall_s = SecondsSince(begin);
  Selection selection(options, scenario, space, costs, std::move(given), run.evaluations());
  WT_RETURN_IF_ERROR(selection.Select(report));
  if (!options.quick) report.full_s = SecondsSince(begin) - report.wall_s;
  if (report.pareto.empty() && report.infeasible > 0)
    report.least = FindLeast(scenario, costs.profile, space, run.evaluations());
  WT_RETURN_IF_ERROR(Show(options, costs, report));
  NoteDoubts(options, scenario, report);
  if (report.pareto.empty())
    return Failed("{}: none of {} legal configurations can be trained: {}", scenario.name, report.legal,
                  MainReason(report));
  return 0;
}

}  // namespace windtunnel
