#include "cli/notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "cost_models/device_spec.h"
#include "scenarios/framework_doubts.h"
#include "scenarios/unused_keys.h"
#include "scenarios/words.h"
#include "topology/link_rates.h"

namespace windtunnel {
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

// Notes on products that are much slower on some machines.
std::vector<std::string> GemmsInDoubt(const DeviceSpec& device) {
  const GemmSpec& gemm = device.gemm;
  if (gemm.slowest_ceiling == 0) return {};
  return {fmt::format(
      "large GEMMs are taken to reach {:.0f} % of {}'s peak; on some machines they reach {:.0f} %, and a "
      "step of GEMMs alone takes {:.0f} % longer: measure one, and give gemm.ceiling in a device of your own "
      "(cost_models/README.md)",
      100 * gemm.ceiling, device.name, 100 * gemm.slowest_ceiling,
      100 * (gemm.ceiling / gemm.slowest_ceiling - 1))};
}

// Whether the step, or any of a search's, updates parameters on the host.
bool Offloads(const Scenario& scenario) {
  if (scenario.parallel.data.offload != Offload::kNone) return true;
  if (!scenario.search) return false;
  const std::vector<Offload>& offload = scenario.search->offload;
  return std::any_of(offload.begin(), offload.end(), [](Offload kind) { return kind != Offload::kNone; });
}

}  // namespace

void Note(const Options& options, const std::string& line) {
  if (!options.quiet) std::fprintf(stderr, "windtunnel: %s\n", line.c_str());
}

void NoteKeysWithoutEffect(const Options& options, const Scenario& scenario) {
  for (const std::string& line : KeysWithoutEffect(scenario)) Note(options, line);
}

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

void NoteCosts(const Options& options, const Costs& costs, const Scenario& scenario) {
  const Profile& profile = costs.profile;
  if (!profile.hardware) return;
  const std::string& device = scenario.cluster.device;
  if (device != profile.name && EmbeddedProfile(device) && EmbeddedProfile(profile.name))
    Note(options, fmt::format("costs are {}'s, which --profile names, and the cluster's device is {}",
                              profile.name, device));
  for (const std::string& line : NodesInDoubt(scenario, *profile.hardware)) Note(options, line);
  for (const std::string& line : GemmsInDoubt(*profile.hardware)) Note(options, line);
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

}  // namespace windtunnel
