#include "cost_models/ring_collectives.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace windtunnel {
namespace {

struct KnownLink {
  std::string_view kind;
  double nominal, ring;  // GB/s
  bool is_nvlink;
};
// Ring rates: nvlink3 from all-reduces on 2 to 8 A100s, 229 to 235 GB/s (vTrain trace tables; stas00/ml-engineering, network);
// nvlink4 from all-gathers and reduce-scatters on 8 H200s, 361.4 and 362.9 GB/s (stas00/ml-engineering); nvlink5 from those on
// 8 B200s, 672 and 695 GB/s (HGX B200, public cluster test summary). PCIe from NCCL 2.28's search: one channel of 15 GB/s on Gen4,
// presumably twice that on Gen5.
constexpr std::array<KnownLink, 5> kLinks = {{{"nvlink3", 300, 230, true},
                                              {"nvlink4", 450, 360, true},
                                              {"nvlink5", 900, 672, true},
                                              {"pcie4", 32, 15, false},
                                              {"pcie5", 64, 30, false}}};
// Of a link given by its bandwidth: the mean share of the NVLinks above, 0.77, 0.80 and 0.75.
constexpr double kRingShare = 0.77;

// Shares of the cards' bandwidth that rings reach on 2 nodes: 200 Gb/s a GPU, 189.6 of 200 GB/s (OCI BM.GPU.B4.8, RoCE) and
// 188.7 of 200 (GKE a3-megagpu, TCPXO); 400 Gb/s a GPU, 328.9 of 400 (GKE a3-ultragpu, RoCE, all-gather); TCP without RDMA,
// 50.2 and 70.9 of 100 (GKE a3-highgpu, TCPX).
constexpr double kShareTo200 = 0.94, kShareBeyond200 = 0.82, kShareOfEthernet = 0.6;

struct Protocol {
  Duration base, nvlink_hop, pci_hop, net;
  double share;   // of the ring's bandwidth
  int overheads;  // host overheads a hop
  bool is_ll = false, is_ll128 = false;
};
// NCCL 2.28, tuning.cc: baseLatencies and hwLatencies of Ring.
const std::array<Protocol, 3> kProtocols = {
    {{Microseconds(6.6), Microseconds(0.6), Microseconds(1.0), Microseconds(2.7), 0.5, 1, true, false},
     {Microseconds(14.0), Microseconds(1.9), Microseconds(2.5), Microseconds(4.0), 0.92, 1, false, true},
     {Microseconds(8.4), Microseconds(3.4), Microseconds(5.7), Microseconds(14.0), 1.0, 3, false, false}}};
constexpr double kSimpleAllReduceAcrossNodes = 1.4;  // tuning.cc, ncclTopoGetAlgoTime

// Steps of the ring, and those that cross nodes; the bytes that pass each link, as a share of the message.
struct RingWork {
  int steps = 0, crossing = 0;
  double moved = 0;
};

RingWork WorkOf(CollectiveKind kind, const RingLayout& ring) {
  const int passes = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBarrier ? 2 : 1;
  RingWork work{passes * (ring.ranks - 1), passes * (ring.nodes - 1), 0};
  work.moved = static_cast<double>(work.steps) / ring.ranks;
  // Broadcast and reduce are pipelines: every link carries the whole message once.
  if (kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce) work.moved = 1;
  // Gather and scatter are messages between the root and each other rank, at once: one hop, and all but the root's part passes
  // the root's link.
  if (kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter) {
    work.crossing = ring.nodes > 1 ? 1 : 0;
    work.steps = 1;
  }
  // Of an all-to-all each rank sends all but its own part; across nodes what leaves shares the node's cards.
  if (kind == CollectiveKind::kAllToAll) {
    work.steps = 1;
    work.crossing = ring.nodes > 1 ? 1 : 0;
    const int local = std::max(ring.ranks / ring.nodes, 1);
    work.moved = ring.nodes > 1 ? static_cast<double>(local) * (ring.ranks - local) / ring.ranks
                                : static_cast<double>(ring.ranks - 1) / ring.ranks;
  }
  // One message to the next rank, and one from the one before, at once.
  if (kind == CollectiveKind::kShift) work = {1, ring.nodes > 1 ? 1 : 0, 1};
  return work;
}

Bandwidth LowLatencyCeiling(const RingLayout& ring, const CollectiveSpec& spec) {
  if (ring.nodes == 1) return spec.ll_one_node;
  return ring.nodes == 2 ? spec.ll_two_nodes : spec.ll_more_nodes;
}

Duration TimeBy(const Protocol& protocol, const Collective& collective, const RingLayout& ring,
                const CollectiveSpec& spec) {
  const RingWork work = WorkOf(collective.kind, ring);
  Duration hop = ring.has_nvlink ? protocol.nvlink_hop : protocol.pci_hop;
  if (ring.nodes > 1) hop = std::max(hop, spec.net_overhead * protocol.overheads);
  Duration latency =
      protocol.base + hop * (work.steps - work.crossing) + (protocol.net + ring.net_latency) * work.crossing;
  const bool is_simple = !protocol.is_ll && !protocol.is_ll128;
  if (is_simple && ring.nodes > 1 && collective.kind == CollectiveKind::kAllReduce)
    latency = latency.Scaled(kSimpleAllReduceAcrossNodes);
  Bandwidth bandwidth = ring.bandwidth * protocol.share;
  if (protocol.is_ll) bandwidth = std::min(bandwidth, LowLatencyCeiling(ring, spec));
  return latency + (MessageBytes(collective) / bandwidth).Scaled(work.moved);
}

Status CheckNetwork(const ClusterSpec& cluster) {
  const bool has_topology = !cluster.topology.preset.empty() || !cluster.topology.links.empty();
  if (has_topology)
    return Unsupported("cluster.topology is not supported yet with a profile without hardware");
  if (cluster.slow_link)
    return Unsupported("cluster.slow_link is not supported yet with a profile without hardware");
  if (!cluster.network.preset.empty())
    return Unsupported("cluster.network: no preset '{}' is known yet; give its parts",
                       cluster.network.preset);
  return Ok();
}

}  // namespace

Result<LinkRates> IntraNodeRates(const LinkSpec& link, const std::string& default_kind) {
  if (link.gbytes_per_s > 0)
    return LinkRates{GBps(link.gbytes_per_s), GBps(link.gbytes_per_s * kRingShare),
                     !link.kind.starts_with("pcie")};
  const std::string& kind = link.kind.empty() ? default_kind : link.kind;
  for (const KnownLink& known : kLinks) {
    if (known.kind == kind) return LinkRates{GBps(known.nominal), GBps(known.ring), known.is_nvlink};
  }
  return InvalidInput(
      "cluster.network.intra_node is '{}', expected nvlink3, nvlink4, nvlink5, pcie4, pcie5 or "
      "{{gbytes_per_s: …}} "
      "between accelerators",
      kind);
}

Result<NicRates> InterNodeRates(const LinkSpec& link) {
  const double gbytes = link.gbits_per_nic > 0 ? link.gbits_per_nic / 8 : link.gbytes_per_s;
  if (gbytes <= 0)
    return InvalidInput(
        "cluster.network.inter_node names no bandwidth, expected gbits_per_nic: collectives span nodes");
  const double share = link.kind == "ethernet" ? kShareOfEthernet
                       : gbytes <= 25          ? kShareTo200
                                               : kShareBeyond200;
  return NicRates{GBps(gbytes * share), Microseconds(link.latency_us.value_or(0))};
}

Result<RingLayout> LayOutRing(const Group& group, const ClusterSpec& cluster, const DeviceSpec& device) {
  WT_RETURN_IF_ERROR(CheckNetwork(cluster));
  WT_ASSIGN_OR_RETURN(LinkRates link, IntraNodeRates(cluster.network.intra_node, device.intra_node));
  const int devices = static_cast<int>(std::max<int64_t>(cluster.devices_per_node, 1));
  std::map<int, int> ranks_of_node;
  for (int rank : group.ranks) ++ranks_of_node[rank / devices];
  RingLayout ring{.ranks = static_cast<int>(group.ranks.size()),
                  .nodes = static_cast<int>(ranks_of_node.size()),
                  .bandwidth = link.ring,
                  .has_nvlink = link.is_nvlink,
                  .net_latency = {}};
  if (ring.nodes == 1) return ring;
  WT_ASSIGN_OR_RETURN(NicRates nic, InterNodeRates(cluster.network.inter_node));
  int fewest = devices;
  for (const auto& [node, ranks] : ranks_of_node) fewest = std::min(fewest, ranks);
  const double cards = static_cast<double>(cluster.network.nics_per_node) * fewest / devices;
  ring.bandwidth = std::min(ring.bandwidth, nic.rate * cards);
  ring.net_latency = nic.latency;
  return ring;
}

Result<Duration> RingTime(const Collective& collective, const RingLayout& ring, const CollectiveSpec& spec) {
  Duration least = Duration::Max();
  for (const Protocol& protocol : kProtocols) {
    if (protocol.is_ll128 && !ring.has_nvlink) continue;
    least = std::min(least, TimeBy(protocol, collective, ring, spec));
  }
  return least + (ring.nodes > 1 ? spec.start_inter : spec.start);
}

}  // namespace windtunnel
