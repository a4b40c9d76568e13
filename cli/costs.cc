#include "cli/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <tuple>

#include "base/digest.h"
#include "base/read_file.h"
#include "base/text.h"
#include "cli/outputs.h"
#include "cli/paths.h"
#include "cost_models/cost_keys.h"
#include "cost_models/cost_model.h"
#include "cost_models/device_spec.h"
#include "plan/balance.h"
#include "plan/outline.h"
#include "runtime/live.h"
#include "runtime/rank_session.h"
#include "scenarios/characters.h"
#include "scenarios/known_names.h"
#include "scenarios/suggest.h"
#include "sim/composed/composed_step.h"
#include "sim/composed/mesh_groups.h"
#include "topology/topology.h"

namespace windtunnel {
namespace {

namespace fs = std::filesystem;

bool IsFile(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The cache's file for a machine with these libraries. Another version of a library gives another file.
std::string CacheFile(const Profile& machine) {
  std::string key = machine.fingerprint;
  for (const auto& [name, version] : machine.libraries) key += "\n" + name + " " + version;
  return machine.name + "." + Sha256Hex(key).substr(0, 12) + ".json";
}

// "cpu-….json" -> "cpu-….scenario-0123456789ab.json".
std::string SnapshotFile(const std::string& cache_file, const Plan& plan) {
  std::string operators = fmt::format("{} ranks\n", plan.world_size);
  if (plan.scenario.run.backend != Backend::kGloo) operators += CommunicatorName(plan) + "\n";
  if (plan.scenario.cluster.nodes > 1 && !plan.axes.empty())
    operators += CommunicatorName(plan, plan.axes[0].groups[0]) + "\n";
  for (const Role& role : plan.roles)
    for (const Op& op : role.steady.ops)
      operators += CostKey(op) + (op.graph > 0 ? " " + GraphLaunchKey(op.graph) : "") + "\n";
  return cache_file.substr(0, cache_file.size() - std::string(".json").size()) + ".scenario-" +
         Sha256Hex(operators).substr(0, 12) + ".json";
}

// The path of the profile file `name`, if there is one. Adds the paths that were tried to `looked`.
std::optional<std::string> FindFile(const std::string& name, std::string& looked) {
  auto look = [&](const std::string& path) {
    looked += (looked.empty() ? "" : ", ") + path;
    return IsFile(path);
  };
  for (const std::string& directory : InstallDirectories())
    if (std::string path = directory + "/cost_models/profiles/" + name + ".json"; look(path)) return path;
  if (auto cache = CacheDirectory()) {
    if (std::string path = *cache + "/" + name + ".json"; look(path)) return path;
    if (Profile machine = MachineProfile(); machine.name == name)
      if (std::string path = *cache + "/" + CacheFile(machine); look(path)) return path;
  }
  return std::nullopt;
}

constexpr std::string_view kDeviceOfYourOwn =
    "a device of your own is a file that changes one of those (cost_models/README.md)";

// The letters and digits of a name, in lower case.
std::string Compact(std::string_view name) {
  std::string compact = LowerCase(name);
  std::erase_if(compact, [](unsigned char c) { return std::isalnum(c) == 0; });
  return compact;
}

// How far a known device is from a name without dashes: 0 for its model ("h100"), or its model and memory
// ("v10032gb"); 1 for the model's end ("4090" for an RTX 4090); 2 without the model's last letter ("a10" for an
// A10G); 3 for another beginning. 4: it is another device.
int DistanceOf(const std::string& wanted, const std::string& known) {
  const size_t memory = known.rfind('-');
  const std::string model = Compact(known.substr(0, known.starts_with("rtx-") ? memory : known.find('-')));
  const std::string of_memory = model + Compact(known.substr(memory));
  if (wanted == model || wanted == of_memory || wanted == of_memory + "b") return 0;
  if (wanted.size() < 2) return 4;
  if (model.ends_with(wanted)) return 1;
  const bool ends_in_letter = std::isalpha(static_cast<unsigned char>(model.back())) != 0;
  if (ends_in_letter && wanted == model.substr(0, model.size() - 1)) return 2;
  return Compact(known).starts_with(wanted) ? 3 : 4;
}

// The known device that a name was meant to be. Of several the one with NVLink, and with 80 GB. Empty: none.
std::string MeantDevice(const std::string& name) {
  const std::string wanted = Compact(name);
  const auto key = [&](const std::string& known) {
    const bool has_nvlink = known.find("-sxm") != std::string::npos, has_80 = known.ends_with("-80g");
    return std::tuple(DistanceOf(wanted, known), !has_nvlink, !has_80);
  };
  const std::vector<std::string> known = EmbeddedProfileNames();
  const auto nearest = std::min_element(known.begin(), known.end(),
                                        [&](const auto& a, const auto& b) { return key(a) < key(b); });
  return DistanceOf(wanted, *nearest) < 4 ? *nearest : MeantWord(name, known);
}

std::string DidYouMean(const std::string& name) {
  const std::string meant = MeantDevice(name);
  return meant.empty() ? "" : fmt::format(" (did you mean '{}'?)", meant);
}

// A measured profile comes before a built-in one of the same name.
Result<Costs> FindByName(const std::string& name) {
  std::string looked;
  if (auto path = FindFile(name, looked)) return LoadCostsOf(*path);
  if (auto json = EmbeddedProfile(name)) {
    WT_ASSIGN_OR_RETURN(Profile profile, ParseProfile(*json, name));
    return Costs{.profile = std::move(profile), .path = name + " (built in)"};
  }
  return InvalidInput(
      "no profile named '{}'{}; `windtunnel list devices` has those that are built in; {} (looked for {})",
      name, DidYouMean(name), kDeviceOfYourOwn, looked);
}

// "the costs of 31 operators, the first of them 'gemm …'"
std::string DescribeMissing(const MissingCosts& missing) {
  size_t operators = missing.kernels.size() + missing.collectives.size();
  if (operators == 0) return "host times or the memory of libraries";
  const std::string& first = missing.kernels.empty() ? missing.collectives.front() : missing.kernels.front();
  return fmt::format("the costs of {} operators, the first of them '{}'", operators, first);
}

}  // namespace

std::string HowToGetCosts(const Costs& costs, const Plan& plan, const std::optional<std::string>& sets) {
  const Scenario& scenario = plan.scenario;
  if (!RunsHere(scenario.cluster.device)) return "name another profile with --profile";
  if (const Status runs = CheckRunsHere(plan); !runs)
    return fmt::format(
        "they cannot be measured here ({}): have cluster.device, which is '{}', name one with a datasheet "
        "(`windtunnel list devices`)",
        runs.error().message, scenario.cluster.device);
  // Costs that --profile names are added to their own file, not to the cache.
  const bool are_named = !costs.cached && !costs.path.empty();
  const std::string out = are_named ? " --out " + ShellWord(costs.path) : "";
  if (scenario.source_file.empty()) {
    if (are_named)
      return fmt::format("measure them with `windtunnel calibrate SCENARIO{}`, of a file of such a scenario",
                         out);
    return "measure them with `windtunnel compare` or `windtunnel calibrate` and a file of such a scenario";
  }
  const std::string file = ShellWord(scenario.source_file) + sets.value_or("");
  const std::string as_before = sets ? "" : " (and the same --set)";
  const std::string place =
      costs.of_this_machine ? "" : ", on the machine and with the libraries that they were measured with";
  if (scenario.cluster.nodes > 1)
    return fmt::format(
        "measure them with `windtunnel {} {}{} --node-rank N --master-addr HOST`{}, given on each of the {} "
        "nodes{}",
        are_named ? "calibrate" : "compare", file, out, as_before, scenario.cluster.nodes, place);
  if (are_named)
    return fmt::format("measure them with `windtunnel calibrate {}{}`{}{}", file, out, as_before, place);
  return fmt::format(
      "measure them with `windtunnel compare {0}` or `windtunnel calibrate {0}`{1}, or have cluster.device, "
      "which is '{2}', name one with a datasheet (`windtunnel list devices`)",
      file, as_before, scenario.cluster.device);
}

bool IsOfThisMachine(const Profile& profile, const Profile& machine) {
  return profile.fingerprint == machine.fingerprint && profile.libraries == machine.libraries;
}

Result<Costs> LoadCostsOf(const std::string& name) {
  if (!NamesProfileFile(name) && !IsFile(name)) return FindByName(name);
  WT_ASSIGN_OR_RETURN(Profile profile, LoadProfile(name));
  // A datasheet belongs to no machine.
  const bool of_this_machine = !profile.hardware && RunsHere(profile.device) &&
                               IsOfThisMachine(profile, MachineProfile(profile.device));
  return Costs{std::move(profile), name, of_this_machine};
}

// The profile in the cache's file at `path`, if it is there and of this machine.
std::optional<Profile> InCache(const std::string& path, const Profile& machine) {
  if (!IsFile(path)) return std::nullopt;
  Result<Profile> profile = LoadProfile(path);
  if (!profile) {
    fmt::print(stderr, "windtunnel: costs in the cache are damaged, and left out: {}\n",
               profile.error().message);
    return std::nullopt;
  }
  if (!IsOfThisMachine(*profile, machine)) return std::nullopt;
  return std::move(*profile);
}

Result<Costs> CachedCosts(const std::string& device) {
  WT_ASSIGN_OR_RETURN(std::string directory, CacheDirectory());
  Profile machine = MachineProfile(KindOfDevice(device));
  std::string path = directory + "/" + CacheFile(machine);
  if (std::optional<Profile> cached = InCache(path, machine))
    return Costs{std::move(*cached), path, true, true};
  return Costs{std::move(machine), path, true, true};
}

Result<Costs> CachedCosts(const Plan& plan) {
  WT_ASSIGN_OR_RETURN(Costs costs, CachedCosts(plan.scenario.cluster.device));
  if (plan.roles.empty()) return costs;
  const std::string path = SnapshotFile(costs.path, plan);
  std::optional<Profile> snapshot = InCache(path, costs.profile);
  if (!snapshot) return costs;
  costs.profile = std::move(*snapshot);
  costs.of_this_scenario = true;
  return costs;
}

Status SaveSnapshot(const Costs& costs, const Plan& plan) {
  return SaveProfile(costs.profile, SnapshotFile(costs.path, plan));
}

namespace {

Result<Costs> FindDeviceCosts(const NamedCosts& named, const Plan& plan) {
  const Scenario& scenario = plan.scenario;
  if (named.profile) return *named.profile;
  const std::string& device = scenario.cluster.device;
  if (device == "cpu" || (device == "cuda" && RunsHere(device))) return CachedCosts(plan);
  std::string looked;
  const bool is_known = NamesProfileFile(device) || IsFile(device) || device == "cuda" ||
                        EmbeddedProfile(device) || FindFile(device, looked);
  if (!is_known)
    return InvalidInput(
        "cluster.device is '{}'{}, expected cpu, cuda, one of `windtunnel list devices` or the name of "
        "another profile; {}",
        device, DidYouMean(device), kDeviceOfYourOwn);
  if (NamesProfileFile(device) && !IsFile(device))
    return InvalidInput(
        "cluster.device: {}: cannot be read (No such file or directory), expected a hardware profile",
        device);
  WT_ASSIGN_OR_RETURN(Costs costs, LoadCostsOf(device == "cuda" ? kDeviceNotAtHand : device));
  if (costs.profile.device == "cpu")
    return InvalidInput(
        "cluster.device is '{}', a profile of processors, expected cluster.device: cpu and --profile {}",
        device, device);
  return costs;
}

// Profiles distinguish PyTorch with FSDP 1 from later PyTorch; in a scenario both are `framework: pytorch`.
Status CheckVersion(const FrameworkProfile& framework, const Scenario& scenario, const std::string& where) {
  constexpr std::string_view kFsdp1 = "pytorch_fsdp1", kLater = "pytorch";
  const std::string& needed = FrameworkOf(scenario).name;
  const bool is_other =
      (framework.base == kFsdp1 && needed == kLater) || (framework.base == kLater && needed == kFsdp1);
  if (!is_other) return Ok();
  return InvalidInput(
      "{}: {} has base {}, expected {}: parallel.data {{kind: fsdp, version: 1}} is predicted as the PyTorch "
      "of its time",
      where, framework.name, framework.base, needed);
}

}  // namespace

Result<NamedCosts> LoadNamedCosts(const Options& options) {
  NamedCosts named;
  named.framework_file = options.framework_profile;
  if (!options.profile.empty()) {
    WT_ASSIGN_OR_RETURN(named.profile, LoadCostsOf(options.profile));
  }
  if (!named.framework_file.empty()) {
    WT_ASSIGN_OR_RETURN(named.framework_text, ReadFile(named.framework_file, "a framework profile"));
    WT_ASSIGN_OR_RETURN(named.framework, ParseFrameworkProfile(named.framework_text, named.framework_file));
  }
  return named;
}

Result<Costs> FindCosts(const Options& options, const Plan& plan) {
  WT_ASSIGN_OR_RETURN(const NamedCosts named, LoadNamedCosts(options));
  return FindCosts(named, plan);
}

Result<Costs> FindCosts(const NamedCosts& named, const Plan& plan) {
  WT_ASSIGN_OR_RETURN(Costs costs, FindDeviceCosts(named, plan));
  const bool is_named = named.framework.has_value();
  const std::string& file = is_named ? named.framework_file : plan.scenario.framework_file;
  if (file.empty()) return costs;
  if (!costs.profile.hardware)
    return InvalidInput("{} is for devices that are not at hand: {} has measured costs of its own",
                        is_named ? "--framework-profile" : "framework: " + file, costs.profile.name);
  costs.profile.framework = named.framework;
  if (!is_named) {
    WT_ASSIGN_OR_RETURN(costs.profile.framework, LoadFrameworkProfile(file));
  }
  WT_RETURN_IF_ERROR(CheckVersion(*costs.profile.framework, plan.scenario,
                                  is_named ? "--framework-profile" : "framework: " + file));
  return costs;
}

Status MakeCostsDirectory(const Costs& costs) {
  return CheckOutputDirectory("measured costs", fs::path(costs.path).parent_path().string());
}

namespace {

// Whether a step with `balance` is faster than one with `other`, if both can be composed.
bool IsFaster(const Scenario& scenario, const std::vector<int64_t>& balance,
              const std::vector<int64_t>& other, const CostModel& model) {
  ComposedSteps steps;
  const auto compose = [&](const std::vector<int64_t>& layers) {
    Scenario balanced = scenario;
    balanced.parallel.pipeline.balance = layers;
    return steps.Compose(balanced, model, Bytes::Max());
  };
  const auto one = compose(balance), another = compose(other);
  return one && another && one->Time() < another->Time();
}

// What-ifs cost the stages as they are something; they are no reason to divide the layers differently. Links
// that are spelled out may be all that is known of the network, so they stay.
Scenario WithoutWhatIfs(Scenario scenario) {
  ClusterSpec& cluster = scenario.cluster;
  cluster.jitter = 0;
  cluster.straggler.reset();
  cluster.slow_link.reset();
  if (cluster.topology.preset.empty()) return scenario;
  cluster.network = NetworkOf(cluster);
  cluster.topology = {};
  return scenario;
}

// The layers of each stage; empty if not all costs are known. The times of the host and of collectives move
// layers away from the stages that have them. Beside a bubble that is not always faster, so a balance by the
// operators' work alone is tried, too.
std::vector<int64_t> FastestBalance(const Scenario& scenario, const Costs& costs) {
  const Plan plan = OutlineOf(scenario);
  const auto model = MakeProfileCostModel(costs.profile, plan, nullptr, CardSharing::kIgnored);
  bool all_known = true;
  const auto known = [&](const auto& cost) {
    all_known = all_known && cost.has_value();
    return cost ? ToSeconds(cost->time.p50()) : 0.0;
  };
  OperatorTimes times{.work = [&](const Op& op) { return known(model->Kernel(op)); }};
  const auto groups = composed::MeshGroupsOf(scenario);
  if (!model->host_computes()) {
    times.host = [&](const Op& op) { return ToSeconds(model->DispatchOf(op).time.p50()); };
    // No collectives if they would have to be measured first, or if an axis's groups lie differently across
    // nodes.
    if (groups && costs.profile.hardware)
      times.collective = [&](const Op& op, std::string_view axis) {
        const Group& group = axis == "tensor"    ? groups->tensor
                             : axis == "context" ? groups->context
                                                 : groups->expert;
        return known(model->Communication(op, group));
      };
  }
  const Bytes room = RoomForAllocator(plan, *model);
  auto balance = ChooseBalance(scenario, times, room);
  if (!balance || !all_known) return {};
  if (times.host && !IsMegatronOrDeepspeed(scenario.framework)) {  // these frameworks count layers
    const auto by_work = ChooseBalance(scenario, {times.work}, room);
    if (by_work && *by_work != *balance && IsFaster(scenario, *by_work, *balance, *model)) balance = by_work;
  }
  return *balance;
}

}  // namespace

Scenario WithBalance(Scenario scenario, const Costs& costs) {
  PipelineSpec& pipeline = scenario.parallel.pipeline;
  if (pipeline.size == 1 || !pipeline.balance.empty() || !CheckSupported(scenario)) return scenario;
  pipeline.balance = FastestBalance(WithoutWhatIfs(scenario), costs);
  return scenario;
}

Result<Prediction> PredictFrom(const Costs& costs, const Plan& plan, bool fold, int threads) {
  auto model = MakeProfileCostModel(costs.profile, plan);
  auto prediction = Predict(plan, *model, {.seed = plan.scenario.run.seed, .fold = fold, .threads = threads});
  if (prediction || prediction.error().kind != ErrorKind::kInvalidInput) return prediction;
  MissingCosts missing = FindMissingCosts(costs.profile, plan);
  if (missing.empty()) return prediction;
  return InvalidInput("{}: profile {} lacks {}: {}", plan.scenario.name, costs.profile.name,
                      DescribeMissing(missing), HowToGetCosts(costs, plan));
}

}  // namespace windtunnel
