#include <chrono>
#include <cmath>
#include <optional>

#include "base/machine_memory.h"
#include "cli/commands.h"
#include "cli/costs.h"
#include "cli/elapsed.h"
#include "cli/load_plan.h"
#include "cli/machine_room.h"
#include "cli/nodes.h"
#include "cli/notes.h"
#include "cli/outcomes.h"
#include "cli/terminal.h"
#include "cost_models/cost_model.h"
#include "runtime/live.h"

namespace windtunnel {
namespace {

constexpr double kLargestDrift = 0.03;  // if costs have moved by more, they are measured again

// Whether the machine is as fast as when the cached `costs` were measured. Sets their `check`.
Result<bool> AreStillTrue(Costs& costs, const Plan& plan, const LiveOptions& live, Progress& progress) {
  if (live.nodes != nullptr && !live.nodes->shares_clock()) return true;  // nothing can be measured there
  const auto drift = CheckCosts(plan, live, costs.profile);
  progress.Clear();
  if (!drift) return tl::unexpected(drift.error());
  costs.check = CostCheck{*drift, std::abs(*drift) > kLargestDrift};
  if (!costs.check->measured_again) return true;
  live.note(fmt::format(
      "{}: the costs measured on {} are no longer true, operators take {:.0f} % {} now: "
      "measuring them again",
      plan.scenario.name, costs.profile.created, 100 * std::abs(*drift), *drift > 0 ? "longer" : "less"));
  return false;
}

// The costs of `plan`. They are measured and saved if they are missing or no longer true.
Result<Costs> CompleteCosts(const Options& options, const Plan& plan, const LiveOptions& live,
                            Progress& progress) {
  WT_ASSIGN_OR_RETURN(Costs costs, FindCosts(options, plan));
  const bool in_context = !costs.cached || costs.of_this_scenario;
  if (!options.recalibrate && in_context && FindMissingCosts(costs.profile, plan).empty()) {
    if (!costs.cached) return costs;
    WT_ASSIGN_OR_RETURN(const bool are_true, AreStillTrue(costs, plan, live, progress));
    if (are_true) return costs;
  }
  if (costs.cached) {
    const std::optional<CostCheck> check = costs.check;
    WT_ASSIGN_OR_RETURN(costs, CachedCosts(plan.scenario.cluster.device));
    costs.check = check;
  }
  if (!costs.of_this_machine)
    return InvalidInput(
        "profile {} ({}) was not measured on this machine with these libraries, so nothing can be added to "
        "it{}; leave --profile out to use this machine's own",
        costs.profile.name, costs.path,
        options.recalibrate ? "" : ", and it lacks costs of " + plan.scenario.name);
  const Status place = MakeCostsDirectory(costs);
  if (!place && !costs.check) return tl::unexpected(place.error());
  Status calibrated = Calibrate(plan, options.recalibrate || costs.cached, live, costs.profile);
  progress.Clear();
  WT_RETURN_IF_ERROR(calibrated);
  if (!place) {  // they were complete, in a cache that cannot be written
    live.note(fmt::format("{}: what was measured again is not kept", place.error().message));
    return costs;
  }
  WT_RETURN_IF_ERROR(SaveProfile(costs.profile, costs.path));
  if (costs.cached) WT_RETURN_IF_ERROR(SaveSnapshot(costs, plan));
  return costs;
}

std::vector<int64_t> LayersOfStages(const PipelinePlan& pipeline) {
  std::vector<int64_t> layers;
  for (const StageRange& stage : pipeline.stages) layers.push_back(stage.end - stage.first);
  return layers;
}

Result<Outcome> CompareOne(const Options& options, Plan plan, NodeGroup* nodes) {
  Progress progress(ShowsProgress(options));
  LiveOptions live = LiveOptionsFor(options, progress);
  live.nodes = nodes;
  WT_ASSIGN_OR_RETURN(Costs costs, CompleteCosts(options, plan, live, progress));
  // After its first measurement a pipeline may be balanced better. Its new stages have other shapes of the
  // optimizer's operators, which may have to be measured.
  if (Scenario balanced = WithBalance(plan.scenario, costs);
      plan.pipeline && balanced.parallel.pipeline.balance != LayersOfStages(*plan.pipeline)) {
    WT_ASSIGN_OR_RETURN(plan, CompilePlan(balanced));
    WT_ASSIGN_OR_RETURN(costs, CompleteCosts(options, plan, live, progress));
  }

  Outcome outcome;
  auto begin = std::chrono::steady_clock::now();
  WT_ASSIGN_OR_RETURN(outcome.prediction,
                      PredictFrom(costs, plan, options.fold));  // frozen before the live run
  outcome.prediction_wall = TimeSince(begin);
  begin = std::chrono::steady_clock::now();
  WT_ASSIGN_OR_RETURN(outcome.measurement, RunLive(plan, live));
  outcome.measurement_wall = TimeSince(begin);
  outcome.plan = std::move(plan);
  outcome.profile = costs.profile;
  outcome.cost_check = costs.check;
  return outcome;
}

// Why the scenario cannot run live here and now; empty if it can.
std::string ObstacleToRunning(const Options& options, const Plan& plan) {
  const std::string& name = plan.scenario.name;
  const std::string& device = plan.scenario.cluster.device;
  if (!RunsHere(device)) {
    return device == "cuda" ? fmt::format("{}: no CUDA device was found ({} instead)", name,
                                          options.profile.empty() ? kDeviceNotAtHand : options.profile)
                            : fmt::format("{}: cluster.device is {}, which is not at hand", name, device);
  }
  if (!IsOfThisMachine(options, plan))
    return fmt::format("{} has {} nodes, and the options do not say which of them this is (--node-rank)",
                       name, plan.scenario.cluster.nodes);
  return "";
}

}  // namespace

Result<int> CompareCommand(const Options& options) {
  WT_RETURN_IF_ERROR(CheckReports(options));
  if (!NamesNodes(options)) WT_RETURN_IF_ERROR(CheckStartedAlone("compare"));
  // Every file is read before the first one runs, so that a mistake in the last one shows at once.
  std::vector<Plan> plans;
  for (const std::string& file : options.files) {
    WT_ASSIGN_OR_RETURN(Plan plan, LoadPlan(options, file, PlanFor::kRun));
    if (ObstacleToRunning(options, plan).empty()) {
      WT_RETURN_IF_ERROR(CheckData(options, plan));
      WT_RETURN_IF_ERROR(CheckRoomFor(plan, options.node_rank.value_or(0), MachineMemory()));
    }
    plans.push_back(std::move(plan));
  }
  std::unique_ptr<NodeGroup> nodes;
  if (NamesNodes(options)) {
    if (plans.size() > 1)
      return InvalidInput("on several nodes one scenario at a time, {} were given", plans.size());
    WT_ASSIGN_OR_RETURN(nodes, MeetNodes(options, plans.front()));
  }
  if (nodes != nullptr && nodes->node() > 0) {
    WT_RETURN_IF_ERROR(FollowNode(*nodes));
    return 0;
  }
  std::vector<Outcome> outcomes;
  bool within_tolerance = true;
  for (Plan& plan : plans) {
    const std::string obstacle = ObstacleToRunning(options, plan);
    if (!obstacle.empty()) Note(options, fmt::format("{}: predicting only", obstacle));
    const std::string file = plan.scenario.source_file;
    Result<Outcome> outcome = obstacle.empty() ? CompareOne(options, std::move(plan), nodes.get())
                                               : PredictOutcome(options, std::move(plan));
    if (!outcome) return tl::unexpected(Placed(options, file, outcome.error()));
    if (outcome->measurement) within_tolerance = within_tolerance && Compare(*outcome).within_tolerance();
    outcomes.push_back(std::move(*outcome));
  }
  WT_RETURN_IF_ERROR(Report(options, outcomes));
  return within_tolerance ? 0 : kOutsideTolerance;
}

}  // namespace windtunnel
