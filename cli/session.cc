#include "cli/session.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.h"
#include "cli/outputs.h"
#include "cli/paths.h"
#include "cost_models/device_spec.h"
#include "plan/outline.h"
#include "reports/html/html_report.h"
#include "reports/result.h"
#include "reports/scaling.h"
#include "reports/svg.h"
#include "reports/table.h"
#include "reports/trace.h"
#include "runtime/data.h"
#include "scenarios/framework_doubts.h"
#include "scenarios/key_places.h"
#include "scenarios/load.h"
#include "scenarios/unused_keys.h"
#include "scenarios/words.h"
#include "topology/link_rates.h"

namespace windtunnel {
namespace {

Status PrintTables(const Options& options, const std::vector<Outcome>& outcomes) {
  if (PrintsAnOutput(options)) return Ok();
  Ink ink = StandardInk();
  if (!options.quiet)
    for (size_t i = 0; i < outcomes.size(); ++i)
      fmt::print("{}{}", i > 0 ? "\n" : "", OutcomeTable(outcomes[i], ink));
  if (options.quiet || outcomes.size() > 1) {
    if (!options.quiet) fmt::print("\n");
    for (const Outcome& outcome : outcomes)
      if (const std::string verdict = VerdictLine(outcome, ink); !verdict.empty())
        fmt::print("{}\n", verdict);
  }
  if (std::fflush(stdout) != 0) return Failed("cannot write to standard output");
  return Ok();
}

}  // namespace

bool PrintsAnOutput(const Options& options) {
  return options.json == "-" || options.html == "-" || options.trace == "-" || options.svg == "-";
}

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

namespace {

// Live runs are as they are.
void NoteWhatIfs(const Options& options, const Scenario& scenario) {
  const ClusterSpec& cluster = scenario.cluster;
  for (const auto& [is_given, key] : {std::pair(cluster.straggler.has_value(), "cluster.straggler"),
                                      std::pair(cluster.slow_link.has_value(), "cluster.slow_link"),
                                      std::pair(cluster.jitter > 0, "cluster.jitter")})
    if (is_given) Note(options, fmt::format("{} is for predictions only: no live run has it", key));
  if (scenario.framework != Framework::kWindtunnel)
    Note(options,
         fmt::format("a live run is Windtunnel's, whatever `framework` says: {} decides the order of "
                     "operators, the buckets and the allocator, and not whose kernels run",
                     WordOf(scenario.framework)));
}

}  // namespace

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

Status CheckReports(const Options& options) {
  if (options.files.size() > 1 && !(options.trace.empty() && options.svg.empty()))
    return InvalidInput("--trace and --svg take one scenario, {} were given", options.files.size());
  int to_stdout =
      (options.json == "-") + (options.trace == "-") + (options.svg == "-") + (options.html == "-");
  if (to_stdout > 1)
    return InvalidInput("only one of --json, --html, --trace and --svg can go to standard output");
  // In a job on several nodes, or of another launcher, only the first node or rank writes outputs.
  const bool is_first = options.node_rank.value_or(0) == 0 && (!JoinsJob(options) || IsFirstRankOfJob());
  return is_first ? CheckOutputFiles(options) : Ok();
}

Result<Outcome> PredictOutcome(const Options& options, const Costs& costs, Plan plan) {
  NoteCosts(options, costs, plan.scenario);
  const auto begin = std::chrono::steady_clock::now();
  WT_ASSIGN_OR_RETURN(Prediction prediction, PredictFrom(costs, plan, options.fold, Cores()));
  Outcome outcome;
  outcome.prediction_wall = TimeSince(begin);
  outcome.plan = std::move(plan);
  outcome.profile = costs.profile;
  outcome.prediction = std::move(prediction);
  return outcome;
}

Result<Outcome> PredictOutcome(const Options& options, Plan plan) {
  WT_ASSIGN_OR_RETURN(const Costs costs, FindCosts(options, plan));
  return PredictOutcome(options, costs, std::move(plan));
}

namespace {

// All but the HTML report, which takes seconds.
Status WriteData(const Options& options, const std::vector<Outcome>& outcomes) {
  if (!options.json.empty()) WT_RETURN_IF_ERROR(WriteText(options.json, ResultJson(outcomes)));
  if (!options.trace.empty()) WT_RETURN_IF_ERROR(WriteText(options.trace, TraceJson(outcomes.front())));
  if (!options.svg.empty()) WT_RETURN_IF_ERROR(WriteText(options.svg, TimelineSvg(outcomes.front())));
  return Ok();
}

Status WriteHtmlReport(const Options& options, const std::vector<Outcome>& outcomes) {
  if (options.html.empty()) return Ok();
  return WriteText(options.html, HtmlReport(outcomes, ScalingsOf(outcomes)));
}

}  // namespace

// Files come first: whoever reads the tables may stop reading, and a closed pipe ends this process.
Status Report(const Options& options, const std::vector<Outcome>& outcomes) {
  const Status written = WriteData(options, outcomes);
  WT_RETURN_IF_ERROR(PrintTables(options, outcomes));
  WT_RETURN_IF_ERROR(written);
  return WriteHtmlReport(options, outcomes);
}

Status WriteReports(const Options& options, const std::vector<Outcome>& outcomes) {
  WT_RETURN_IF_ERROR(WriteData(options, outcomes));
  return WriteHtmlReport(options, outcomes);
}

std::vector<Scaling> ScalingsOf(const std::vector<Outcome>& outcomes) {
  std::vector<Scaling> scalings;
  for (const Outcome& outcome : outcomes) {
    Scaling& scaling = scalings.emplace_back();
    if (!outcome.prediction || !outcome.profile.hardware) continue;
    Costs costs;
    costs.profile = outcome.profile;
    scaling =
        PredictScaling(outcome.plan.scenario, [&](const Plan& plan) { return PredictFrom(costs, plan); });
  }
  return scalings;
}

Ink StandardInk() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  bool refused = (no_color && *no_color) || (terminal && std::string_view(terminal) == "dumb");
  return Ink(!refused && IsTerminal(stdout));
}

bool ShowsProgress(const Options& options) {
  return options.progress && !options.quiet && IsTerminal(stderr);
}

int ThreadsFor(const Options& options) { return options.threads > 0 ? options.threads : Cores(); }

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Duration TimeSince(std::chrono::steady_clock::time_point begin) { return Seconds(SecondsSince(begin)); }

LiveOptions LiveOptionsFor(const Options& options, Progress& progress) {
  LiveOptions live;
  if (ShowsProgress(options))
    live.progress = [&progress](const std::string& what, double share) { progress.Show(what, share); };
  if (options.verbose) live.log = [&progress](const std::string& line) { progress.Log(line); };
  live.note = [&options, &progress](const std::string& line) {
    progress.Clear();
    Note(options, line);
  };
  return live;
}

namespace {

// Notes on node shapes that no system has, or that suggest another cluster.nodes was meant. They matter,
// since links within a node are many times as fast as those between nodes.
std::vector<std::string> NodesInDoubt(const Scenario& scenario, const DeviceSpec& device) {
  const ClusterSpec& cluster = scenario.cluster;
  const LinkSpec& within = cluster.network.intra_node;
  const std::string link = within.kind.empty() ? device.intra_node : within.kind;
  std::vector<std::string> lines;
  const bool is_linkable =  // otherwise it is refused
      device.most_devices_per_node == 0 || cluster.devices_per_node <= device.most_devices_per_node;
  // A DGX-2 has sixteen of the V100s that a DGX-1 has eight of, and their links meet in switches.
  const bool is_dgx2 = device.intra_node == "nvlink2_mesh" && link == "nvlink2";
  const int64_t usual = is_dgx2 ? 16 : device.usual_devices_per_node;
  if (usual > 0 && cluster.devices_per_node > usual && is_linkable)
    lines.push_back(fmt::format(
        "{} devices of a node are taken to be joined by {}; systems of {} have {} (cluster.nodes, "
        "cluster.devices_per_node)",
        cluster.devices_per_node, link, device.name, usual));
  constexpr int64_t kOfTray = 8;
  const bool is_rack = device.most_devices_per_node > kOfTray;
  if (is_rack && cluster.nodes > 1 && cluster.devices_per_node <= kOfTray && cluster.topology.links.empty())
    lines.push_back(fmt::format(
        "nodes of {} are taken to be joined by the network; {} joins up to {} {} of a rack, which is a node "
        "here (cluster.devices_per_node)",
        cluster.devices_per_node, link, device.most_devices_per_node, device.name));
  if (cluster.devices_per_node > 1 && within.gbytes_per_s == 0 && link != device.intra_node && !is_dgx2)
    lines.push_back(fmt::format("devices of a node are joined by {}, as cluster.network says; {} has {}",
                                link, device.name, device.intra_node));
  const bool is_on_pcie = device.intra_node.starts_with("pcie");
  const auto own = IntraNodeRates({}, device.intra_node);
  if (is_on_pcie && own && cluster.devices_per_node > 2 && !within.kind.starts_with("pcie") &&
      GBps(within.gbytes_per_s) > own->nominal)
    lines.push_back(fmt::format(
        "{} devices of a node are taken to be joined by {} GB/s, all of them; NVLink bridges of {} "
        "join pairs, and a ring of more than two goes over {}",
        cluster.devices_per_node, within.gbytes_per_s, device.name, device.intra_node));
  return lines;
}

// Notes on rates of attention that nobody has published.
std::vector<std::string> AttentionInDoubt(const Scenario& scenario, const DeviceSpec& device) {
  const auto source = device.sources.find("attention.flash");
  const bool is_guess = source != device.sources.end() && source->second.starts_with("a guess");
  if (!is_guess || scenario.model.kind != ModelKind::kTransformer ||
      scenario.model.attention == AttentionKind::kEager)
    return {};
  return {fmt::format("how fast {} computes attention is a guess (cost_models/README.md)", device.name)};
}

// Whether the step, or any of a search's, updates parameters on the host.
bool Offloads(const Scenario& scenario) {
  if (scenario.parallel.data.offload != Offload::kNone) return true;
  if (!scenario.search) return false;
  const std::vector<Offload>& offload = scenario.search->offload;
  return std::any_of(offload.begin(), offload.end(), [](Offload kind) { return kind != Offload::kNone; });
}

}  // namespace

void NoteKeysWithoutEffect(const Options& options, const Scenario& scenario) {
  for (const std::string& line : KeysWithoutEffect(scenario)) Note(options, line);
}

void NoteCosts(const Options& options, const Costs& costs, const Scenario& scenario) {
  const Profile& profile = costs.profile;
  if (!profile.hardware) return;
  const std::string& device = scenario.cluster.device;
  if (device != profile.name && EmbeddedProfile(device) && EmbeddedProfile(profile.name))
    Note(options, fmt::format("costs are {}'s, which --profile names, and the cluster's device is {}",
                              profile.name, device));
  for (const std::string& line : NodesInDoubt(scenario, *profile.hardware)) Note(options, line);
  for (const std::string& line : AttentionInDoubt(scenario, *profile.hardware)) Note(options, line);
  for (const std::string& line : FrameworkDoubts(scenario)) Note(options, line);
  if (Offloads(scenario))
    Note(options,
         "the optimizer on the host is predicted at the bandwidth of the host's memory, which is the least "
         "that it can take: published steps spend 8 to 40 times as long on it, some with one thread a rank "
         "(OMP_NUM_THREADS, which torchrun sets to 1)");
  if (scenario.run.backend != Backend::kNccl && scenario.WorldSize() > 1)
    Note(options, fmt::format("run.backend changes nothing here: collectives of {} are predicted as NCCL's",
                              profile.name));
}

void Note(const Options& options, const std::string& line) {
  if (!options.quiet) std::fprintf(stderr, "windtunnel: %s\n", line.c_str());
}

}  // namespace windtunnel
