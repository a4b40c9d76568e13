#include <filesystem>

#include "base/machine_memory.h"
#include "cli/commands.h"
#include "cli/costs.h"
#include "cli/load_plan.h"
#include "cli/machine_room.h"
#include "cli/nodes.h"
#include "cli/outputs.h"
#include "cli/paths.h"
#include "cli/step_calibration.h"
#include "cli/terminal.h"
#include "cost_models/disturbed_costs.h"
#include "runtime/live.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

// Measured when no scenario is named: a small GPT on one rank and, for the collectives, on two.
constexpr char kStandardModel[] = R"(
name: standard
model: {kind: transformer, layers: 4, hidden: 256, heads: 4, kv_heads: 4, ffn: 1024, vocab: 8192, seq_len: 128}
batch: {micro: 4}
)";
constexpr char kStandardPair[] = R"(
parallel: {data: {kind: ddp, size: 2}}
cluster: {devices_per_node: 2}
)";

Result<std::vector<Plan>> PlansToMeasure(const Options& options) {
  std::vector<Plan> plans;
  if (!options.files.empty()) {
    for (const std::string& file : options.files) {
      WT_ASSIGN_OR_RETURN(Plan plan, LoadPlan(options, file, PlanFor::kRun));
      WT_RETURN_IF_ERROR(CheckData(options, plan));
      WT_RETURN_IF_ERROR(CheckRoomFor(plan, options.node_rank.value_or(0), MachineMemory()));
      plans.push_back(std::move(plan));
    }
    return plans;
  }
  if (!options.sets.empty()) return InvalidInput("--set needs a scenario to override");
  for (const std::string& text : {std::string(kStandardModel), std::string(kStandardModel) + kStandardPair}) {
    WT_ASSIGN_OR_RETURN(Scenario scenario, ParseScenario(text, "the standard scenario", ".", {}));
    WT_ASSIGN_OR_RETURN(Plan plan, CompilePlan(scenario));
    plans.push_back(std::move(plan));
  }
  return plans;
}

// The profile to extend: --out, or --profile, or this machine's cache.
Result<Costs> CostsToExtend(const Options& options, const std::string& device) {
  if (options.out.empty())
    return options.profile.empty() ? CachedCosts(device) : LoadCostsOf(options.profile);
  std::string path = options.out;
  std::error_code error;
  if (std::filesystem::exists(path, error)) return LoadCostsOf(path);
  if (!options.profile.empty()) {
    WT_ASSIGN_OR_RETURN(Costs costs, LoadCostsOf(options.profile));
    costs.path = path;
    return costs;
  }
  return Costs{MachineProfile(KindOfDevice(device)), path, true};
}

// Whether what the plans need can be measured here, all on one device.
Status CheckMeasurable(const std::vector<Plan>& plans) {
  const std::string& device = plans.front().scenario.cluster.device;
  for (const Plan& plan : plans) {
    if (plans.size() > 1 && plan.scenario.cluster.nodes > 1)
      return InvalidInput("on several nodes one scenario at a time, {} were given", plans.size());
    const std::string& own = plan.scenario.cluster.device;
    if (!RunsHere(own) && own == "cuda")
      return Failed("{}: cluster.device: no CUDA device was found", plan.scenario.name);
    if (!RunsHere(own))
      return InvalidInput(
          "{}: cluster.device is '{}', expected cpu or cuda: nothing else can be measured here",
          plan.scenario.name, own);
    if (KindOfDevice(own) != KindOfDevice(device))
      return InvalidInput("{}: cluster.device is {}, that of {} is {}: a profile is of one device",
                          plan.scenario.name, own, plans.front().scenario.name, device);
  }
  return Ok();
}

}  // namespace

Result<int> CalibrateCommand(const Options& options) {
  if (!options.steps.empty() && !options.files.empty())
    return InvalidInput("--steps is given, expected no scenario beside it ({})", options.files.front());
  // A profile is written to a new file in the same directory, which then replaces the old one.
  const std::string directory = std::filesystem::path(options.out).parent_path().string();
  if (std::error_code error; !directory.empty() && !std::filesystem::is_directory(directory, error))
    return InvalidInput("--out: {}: cannot be written (there is no directory {})", options.out, directory);
  WT_RETURN_IF_ERROR(CheckOutputDirectory("--out", directory));
  if (!options.steps.empty()) {
    WT_RETURN_IF_ERROR(CheckOutputFiles(options));
    return CalibrateSteps(options);
  }
  if (options.out == "-") return InvalidInput("--out is -, expected a file: what is measured is added to it");
  if (!options.framework_profile.empty())
    return InvalidInput("--framework-profile changes nothing that is measured, expected it with --steps");
  if (!NamesNodes(options)) WT_RETURN_IF_ERROR(CheckStartedAlone("calibrate"));
  WT_ASSIGN_OR_RETURN(std::vector<Plan> plans, PlansToMeasure(options));
  const std::string& device = plans.front().scenario.cluster.device;
  WT_RETURN_IF_ERROR(CheckMeasurable(plans));
  WT_ASSIGN_OR_RETURN(Costs costs, CostsToExtend(options, device));
  if (!costs.of_this_machine)
    return InvalidInput(
        "profile {} ({}) was not measured on this machine with these libraries, so nothing can be added to "
        "it",
        costs.profile.name, costs.path);
  WT_RETURN_IF_ERROR(MakeCostsDirectory(costs));
  Progress progress(ShowsProgress(options));
  LiveOptions live = LiveOptionsFor(options, progress);
  std::unique_ptr<NodeGroup> nodes;
  for (const Plan& plan : plans) {
    WT_ASSIGN_OR_RETURN(nodes, MeetNodes(options, plan));
    live.nodes = nodes.get();
    if (nodes != nullptr && nodes->node() > 0) {
      WT_RETURN_IF_ERROR(FollowNode(*nodes));
      return 0;
    }
    bool measure = options.recalibrate;
    if (costs.cached) {
      WT_ASSIGN_OR_RETURN(const Costs own, CachedCosts(plan));
      measure |= !own.of_this_scenario;
    }
    WT_RETURN_IF_ERROR(Calibrate(plan, measure, live, costs.profile));
    WT_RETURN_IF_ERROR(SaveProfile(costs.profile, costs.path));
    if (costs.cached && measure) WT_RETURN_IF_ERROR(SaveSnapshot(costs, plan));
    if (const std::string disturbance = DescribeDisturbance(costs.profile, plan); !disturbance.empty())
      live.note(
          fmt::format("{}: {} `calibrate --recalibrate` measures again", plan.scenario.name, disturbance));
  }
  progress.Clear();
  if (!options.quiet)
    WT_RETURN_IF_ERROR(Print(fmt::format("{}: {} kernel and {} collective costs of {}\n", costs.path,
                                         costs.profile.kernels.size(), costs.profile.collectives.size(),
                                         costs.profile.name)));
  return 0;
}

}  // namespace windtunnel
