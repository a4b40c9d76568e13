#include "cost_models/nccl_collectives.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <span>

#include "base/ceil_divide.h"
#include "base/check.h"

namespace windtunnel {
namespace {

// ---- what NCCL's search finds ------------------------------------------------------------------------------

// The channel speeds that NCCL 2.28 tries, in GB/s (src/graph/search.cc).
constexpr double kIntraSpeeds[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr double kInterSpeeds[] = {48, 30, 28, 24, 20, 18,  15,  12,   10,  9,
                                   7,  6,  5,  4,  3,  2.4, 1.2, 0.24, 0.12};
constexpr double kHopperIntraSpeeds[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr double kHopperInterSpeeds[] = {48, 45, 42, 40, 30,  24,  22,   20,  17.5,
                                         15, 12, 6,  3,  2.4, 1.2, 0.24, 0.12};
constexpr double kBlackwellIntraSpeeds[] = {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18};
constexpr double kBlackwellInterSpeeds[] = {96,   48, 45.1, 42, 40, 30,  24,  22,   20,
                                            17.5, 15, 12,   6,  3,  2.4, 1.2, 0.24, 0.12};

// A generation's NVLink as NCCL sees it: the rings of a node (channels x speed, before they are doubled) and
// all links of a device (src/graph/topo.h: 20, 20, 20.6 and 40.1 GB/s a link); and the vendor's nominal
// bandwidth.
struct Generation {
  int channels;
  double speed, total, nominal;
  std::span<const double> intra, inter;
};
const Generation& Of(GpuGeneration generation) {
  static const std::array<Generation, 4> kGenerations = {
      {{6, 20, 120, 150, kIntraSpeeds, kInterSpeeds},
       {6, 40, 240, 300, kIntraSpeeds, kInterSpeeds},
       {6, 60, 370.8, 450, kHopperIntraSpeeds, kHopperInterSpeeds},
       {8, 90, 721.8, 900, kBlackwellIntraSpeeds, kBlackwellInterSpeeds}}};
  return kGenerations[static_cast<size_t>(generation)];
}

// The fastest of `speeds`, which descend, that is at most `most`; `most` itself if all are above it.
double SpeedBelow(std::span<const double> speeds, double most) {
  for (double speed : speeds) {
    if (speed <= most * (1 + 1e-9)) return speed;
  }
  return most;
}

// NCCL splits fast channels in two (ncclTopoDupChannels).
bool AreDoubled(int channels, double speed, GpuGeneration generation) {
  const bool is_new = generation > GpuGeneration::kAmpere;
  return speed >= 25 && !(is_new && speed < 50 && channels > 4);
}
NcclGraph GraphOf(int channels, double intra, double inter, bool doubled) {
  const double share = doubled ? 0.5 : 1;
  return {channels * (doubled ? 2 : 1), GBps(intra * share), GBps(inter * share)};
}

bool HasNvls(GpuGeneration generation) { return generation >= GpuGeneration::kHopper; }

// Reductions in a node's switches have one head for each of its devices.
double NvlsSpeed(GpuGeneration generation, int heads, double total) {
  const double most = generation == GpuGeneration::kBlackwell ? 80 : 60;
  return SpeedBelow(Of(generation).intra, std::min(total / heads, most));
}

void SearchNode(const GroupLayout& layout, NcclCommunicator& c) {
  const Generation& generation = Of(c.generation);
  if (!layout.link.is_nvlink) {  // one ring over PCIe
    const double speed = layout.link.ring / GBps(1);
    c.ring = c.tree = GraphOf(1, speed, speed, false);
    return;
  }
  const double scale = layout.link.nominal / GBps(generation.nominal);
  const bool doubled = AreDoubled(generation.channels, generation.speed, c.generation);
  const double speed = generation.speed * scale;
  c.ring = c.tree = GraphOf(generation.channels, speed, speed, doubled);
  if (c.generation == GpuGeneration::kBlackwell) c.tree = GraphOf(8, 80 * scale, 80 * scale, true);
  if (c.generation == GpuGeneration::kHopper && layout.ranks == 2) c.tree.intra = c.tree.inter = GBps(speed);
  if (HasNvls(c.generation) && layout.ranks > 1)
    c.nvls = {layout.ranks, GBps(NvlsSpeed(c.generation, layout.ranks, generation.total) * scale),
              GBps(generation.speed * scale)};
}

// The speed of each of so many rings over nodes, each through a card of its own. All pass the links of the
// node's devices (`total`), except where they leave it.
double SpeedOfRings(int rings, double card, double total, int ranks_per_node, const Generation& generation) {
  const double p = ranks_per_node;
  const double within = p > 1 ? total / rings * p / (p - 1) : card;
  return SpeedBelow(generation.inter, std::min(card, within));
}

// Each card is one ring's path into and out of a node. Where devices have one link, over PCIe, that carries
// few fast rings, but many only at one of the lowest speeds that NCCL tries: it takes the number that carries
// most.
int RingsOverNodes(const GroupLayout& layout, double card, double total, const Generation& generation) {
  if (layout.link.is_nvlink) return layout.cards;
  int best = 1;
  double most = 0;
  for (int rings = 1; rings <= layout.cards; ++rings) {
    const double all = rings * SpeedOfRings(rings, card, total, layout.ranks_per_node, generation);
    if (all < most) continue;
    most = all;
    best = rings;
  }
  return best;
}

void SearchNodes(const GroupLayout& layout, NcclCommunicator& c) {
  const Generation& generation = Of(c.generation);
  const double card = layout.cards_nominal / GBps(1) / layout.cards;
  const int p = layout.ranks_per_node;
  const double total = layout.link.is_nvlink
                           ? generation.total * (layout.link.nominal / GBps(generation.nominal))
                           : layout.link.ring / GBps(1);
  const int cards = RingsOverNodes(layout, card, total, generation);
  const double speed = SpeedOfRings(cards, card, total, p, generation);
  const bool doubled = AreDoubled(cards, speed, c.generation);
  c.ring = GraphOf(cards, speed, speed, doubled);
  double tree = 2 * speed;
  if (p > 1 && !HasNvls(c.generation))
    tree = std::max(speed, SpeedBelow(generation.intra, std::min(tree, total / cards)));
  if (c.generation == GpuGeneration::kHopper) tree = speed;
  c.tree = GraphOf(cards, tree, speed, doubled);
  c.has_plain_trees = HasNvls(c.generation) || p == 1;
  if (HasNvls(c.generation) && layout.link.is_nvlink && p > 1) {
    const double scale = layout.link.nominal / GBps(generation.nominal);
    const double heads = NvlsSpeed(c.generation, p, generation.total) * scale;
    const double inter = speed * cards / p;
    c.nvls = {p, GBps(c.generation == GpuGeneration::kBlackwell ? std::min(heads, inter) : heads),
              GBps(inter)};
  }
}

// ---- collectives that NCCL has a model of ------------------------------------------------------------------

// A barrier is an all-reduce of one element.
CollectiveKind NcclKind(CollectiveKind kind) {
  return kind == CollectiveKind::kBarrier ? CollectiveKind::kAllReduce : kind;
}
Bytes NcclBytes(const Collective& collective) { return std::max(MessageBytes(collective), Bytes(4)); }

Pattern PatternOf(NcclAlgorithm algorithm) {
  switch (algorithm) {
    case NcclAlgorithm::kTree:
      return Pattern::kTree;
    case NcclAlgorithm::kRing:
      return Pattern::kRing;
    case NcclAlgorithm::kNvls:
      return Pattern::kNvls;
    case NcclAlgorithm::kNvlsTree:
      return Pattern::kNvlsTree;
    case NcclAlgorithm::kPat:
      return Pattern::kPat;
  }
  return Pattern::kRing;
}

bool IsWanted(const NcclEntry& entry, CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::kRing:
      return entry.algorithm == NcclAlgorithm::kRing;
    case CollectiveAlgorithm::kTree:
      return entry.algorithm == NcclAlgorithm::kTree;
    case CollectiveAlgorithm::kNvls:
      return entry.algorithm == NcclAlgorithm::kNvls || entry.algorithm == NcclAlgorithm::kNvlsTree;
    case CollectiveAlgorithm::kPat:
      return entry.algorithm == NcclAlgorithm::kPat;
    case CollectiveAlgorithm::kAuto:
    case CollectiveAlgorithm::kHierarchical:
      return true;
  }
  return true;
}
bool IsWanted(const NcclEntry& entry, CollectiveProtocol protocol) {
  switch (protocol) {
    case CollectiveProtocol::kAuto:
      return true;
    case CollectiveProtocol::kLl:
      return entry.protocol == NcclProtocol::kLl;
    case CollectiveProtocol::kLl128:
      return entry.protocol == NcclProtocol::kLl128;
    case CollectiveProtocol::kSimple:
      return entry.protocol == NcclProtocol::kSimple;
  }
  return true;
}

// The entries of the table that match the wish; the whole table if none does.
template <typename Wish>
std::vector<NcclEntry> Wanted(const std::vector<NcclEntry>& table, Wish wish) {
  std::vector<NcclEntry> wanted;
  for (const NcclEntry& entry : table) {
    if (IsWanted(entry, wish)) wanted.push_back(entry);
  }
  return wanted.empty() ? table : wanted;
}

class Model {
 public:
  Model(const GroupLayout& layout, const CollectiveSpec& spec, CollectiveAlgorithm algorithm,
        CollectiveProtocol protocol)
      : layout_(layout), spec_(spec), algorithm_(algorithm), protocol_(protocol) {}

  CollectiveTime TimeOf(const OpKind& op) const {
    if (!std::holds_alternative<Collective>(op)) return OnePair(MessageBytes(op));
    const auto& collective = std::get<Collective>(op);
    switch (collective.kind) {
      case CollectiveKind::kGather:
      case CollectiveKind::kScatter:
      case CollectiveKind::kAllToAll:
        return ToAllOthers(MessageBytes(collective));
      case CollectiveKind::kTokenExchange:
        return Relayed(MessageBytes(collective), collective.reach);
      case CollectiveKind::kShift:
        // With several ranks on each of several nodes, some messages leave the node; the others arrive
        // sooner.
        return OnePair(MessageBytes(collective));
      default:
        break;
    }
    const CollectiveKind kind = NcclKind(collective.kind);
    const bool by_levels = algorithm_ == CollectiveAlgorithm::kHierarchical && HasLevels(kind);
    return by_levels ? Hierarchical(kind, NcclBytes(collective)) : OfNccl(kind, NcclBytes(collective));
  }

 private:
  Duration Start() const { return layout_.nodes > 1 ? spec_.start_inter : spec_.start; }

  CollectiveTime OfNccl(CollectiveKind kind, Bytes bytes) const {
    const NcclCommunicator found = CommunicatorOf(layout_, spec_);
    const std::vector<NcclEntry> table = Wanted(Wanted(NcclTable(kind, found), algorithm_), protocol_);
    const NcclEntry& choice = ChooseAsNccl(kind, table, bytes, found);
    const Duration latency = choice.latency.Scaled(LatencyFactor(kind, choice, bytes, found)) + Start();
    Duration moving = bytes / Achieved(kind, choice, bytes, found);
    if (IsByMeasuredSwitch(kind, choice)) moving += NvlsRamp(bytes);
    return {PatternOf(choice.algorithm), latency + moving, latency, choice.protocol};
  }

  bool IsByMeasuredSwitch(CollectiveKind kind, const NcclEntry& choice) const {
    return choice.algorithm == NcclAlgorithm::kNvls && kind == CollectiveKind::kAllReduce &&
           spec_.nvls > Bandwidth();
  }
  // Reductions in a switch reach their rate slowly: 75 us x b / (b + 16 MiB) more, from the excess of
  // all-reduces of 2 to 512 MiB on 8 H100s and H200s (9 us at 2 MiB, 25 at 8, 36 at 16, 50 at 32, 72 at 128;
  // NVIDIA/dgxc-benchmarking, AWS p5.48xlarge, stas00).
  static Duration NvlsRamp(Bytes bytes) { return Microseconds(75).Scaled(bytes / (bytes + MiB(16))); }

  // The measured bandwidth of the algorithm and protocol that NCCL chose.
  Bandwidth Achieved(CollectiveKind kind, const NcclEntry& choice, Bytes bytes,
                     const NcclCommunicator& found) const {
    if (IsByMeasuredSwitch(kind, choice)) return OfSwitch(layout_.ranks);
    for (const NcclEntry& entry : NcclTable(kind, AchievedBy(found, layout_))) {
      if (entry.algorithm != choice.algorithm || entry.protocol != choice.protocol) continue;
      if (entry.algorithm == NcclAlgorithm::kNvlsTree) {
        const bool is_estimated_low = spec_.generation == GpuGeneration::kBlackwell;
        return is_estimated_low ? OfSwitchesAndCards() : std::min(entry.bandwidth, MostOfTrees());
      }
      if (entry.algorithm != NcclAlgorithm::kTree) return entry.bandwidth;
      return std::min(entry.bandwidth, MostOfTrees()) *
             TreeCorrection(entry.protocol, bytes, /*interpolated=*/true);
    }
    return choice.bandwidth;
  }

  // The measured bandwidth of the message in the switch of a node that has this many of the ranks.
  Bandwidth OfSwitch(double ranks) const {
    const Bandwidth link = layout_.link.nominal * (1 / Of(spec_.generation).nominal);
    return spec_.nvls * (link / GBps(1)) * (ranks / (ranks + 1));
  }
  // Blackwell's reductions in switches with trees between them, which NCCL estimates at 265 GB/s on 2 nodes
  // of 8: within nodes at the switch's rate, between them as measured.
  Bandwidth OfSwitchesAndCards() const {
    return std::min(
        OfSwitch(layout_.ranks_per_node),
        layout_.cards_nominal * (kBlackwellCardsByTrees * layout_.nodes / (2.0 * (layout_.nodes - 1))));
  }

  // With trees over N nodes, each node's cards carry 2 (N-1)/N of the message. (For few devices per node,
  // NCCL's estimate is above that.)
  Bandwidth MostOfTrees() const {
    if (layout_.nodes == 1) return layout_.link.nominal;
    return layout_.cards_achieved * (layout_.nodes / (2.0 * (layout_.nodes - 1)));
  }

  bool HasLevels(CollectiveKind kind) const {
    const bool is_one = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather ||
                        kind == CollectiveKind::kReduceScatter;
    return is_one && layout_.nodes > 1 && layout_.ranks_per_node > 1 &&
           layout_.ranks == layout_.nodes * layout_.ranks_per_node;
  }

  CollectiveTime Hierarchical(CollectiveKind kind, Bytes bytes) const {
    GroupLayout within = layout_;
    within.ranks = layout_.ranks_per_node;
    within.nodes = 1;
    GroupLayout between = layout_;  // of one group of the ranks at the same place of their nodes
    between.ranks = layout_.nodes;
    between.ranks_per_node = 1;
    between.cards = std::max(layout_.cards / layout_.ranks_per_node, 1);
    between.cards_nominal = layout_.cards_nominal * (1.0 / layout_.ranks_per_node);
    between.cards_achieved = layout_.cards_achieved * (1.0 / layout_.ranks_per_node);
    const Bytes part(CeilDivide(bytes.count(), within.ranks));
    const Model in_node(within, spec_, CollectiveAlgorithm::kAuto, protocol_);
    const Model among_nodes(between, spec_, CollectiveAlgorithm::kAuto, protocol_);
    std::vector<CollectiveTime> levels = {among_nodes.OfNccl(kind, part)};
    if (kind != CollectiveKind::kAllGather)
      levels.push_back(in_node.OfNccl(CollectiveKind::kReduceScatter, bytes));
    if (kind != CollectiveKind::kReduceScatter)
      levels.push_back(in_node.OfNccl(CollectiveKind::kAllGather, bytes));
    CollectiveTime sum{Pattern::kHierarchical, {}, {}};
    for (const CollectiveTime& level : levels) {
      sum.time += level.time;
      sum.latency += level.latency;
    }
    return sum;
  }

  // ---- messages between pairs

  // NCCL's protocols for messages, with the latencies of one hop of a ring (tuning.cc). LL: within a node.
  struct PairProtocol {
    double base, nvlink, pci, net, share;
  };
  static constexpr PairProtocol kPairLl = {6.6, 0.6, 1.0, 0, 0.5};
  static constexpr PairProtocol kPairSimple = {8.4, 3.4, 5.7, 14.0, 1};
  // The rate that messages from one rank to another reach over a network card: 19.8 GB/s of 50 (and 22.6 in
  // an all-to-all of that cluster; HGX B200, public cluster test summary), 24.2 of 25, or 18.3 with NCCL 2.20
  // and later (nccl issue 1272). The mean.
  static Bandwidth PairCeiling() { return GBps(21.2); }

  Bandwidth OwnCard() const { return layout_.cards_achieved * (1.0 / layout_.ranks_per_node); }
  // A rank's messages: `within` of the bytes over its link, `beyond` of them over its card.
  CollectiveTime Pairs(Bytes bytes, double within, double beyond, Bandwidth card) const {
    CollectiveTime best{Pattern::kPairs, Duration::Max(), {}};
    for (const PairProtocol& protocol : {kPairLl, kPairSimple}) {
      const bool is_ll = protocol.net == 0;
      if (is_ll && (beyond > 0 || protocol_ == CollectiveProtocol::kSimple)) continue;
      if (!is_ll && beyond == 0 && protocol_ == CollectiveProtocol::kLl) continue;
      const double hop = beyond > 0 ? protocol.net : layout_.link.is_nvlink ? protocol.nvlink : protocol.pci;
      Duration latency = Microseconds(protocol.base + hop) + Start();
      // The network's latency counts twice: for the message, and for what flushes it.
      latency += beyond > 0 ? layout_.net_latency * 2 : layout_.link.latency;
      Duration moving;
      if (within > 0) moving = (bytes / (layout_.link.ring * protocol.share)).Scaled(within);
      if (beyond > 0) moving = std::max(moving, (bytes / card).Scaled(beyond));
      if (latency + moving < best.time)
        best = {Pattern::kPairs, latency + moving, latency,
                is_ll ? NcclProtocol::kLl : NcclProtocol::kSimple};
    }
    return best;
  }
  CollectiveTime OnePair(Bytes bytes) const {
    const bool leaves = layout_.nodes > 1;
    return Pairs(bytes, leaves ? 0 : 1, leaves ? 1 : 0, std::min(OwnCard(), PairCeiling()));
  }
  CollectiveTime Relayed(Bytes bytes, const TokenReach& reach) const {
    const double nodes = layout_.nodes, p = layout_.ranks_per_node;
    Duration latency = Microseconds(kPairSimple.base) + Start();
    if (p > 1) latency += Microseconds(kPairSimple.nvlink) + layout_.link.latency;
    if (nodes > 1) latency += Microseconds(kPairSimple.net) + layout_.net_latency * 2;
    const Bandwidth link = std::min(layout_.link.ring, layout_.link.nominal * kOfLinkByDeepEp);
    Duration moving = (bytes / link).Scaled(nodes * (p - 1) * reach.rank);
    if (nodes > 1) {
      const Bandwidth card = layout_.cards_nominal * (kOfCardsByDeepEp / p);
      moving = std::max(moving, (bytes / card).Scaled((nodes - 1) * reach.node));
    }
    return {Pattern::kRelayed, latency + moving, latency};
  }

  CollectiveTime ToAllOthers(Bytes bytes) const {
    const double n = layout_.ranks, p = layout_.ranks_per_node;
    const double beyond = layout_.nodes > 1 ? (n - p) / n : 0;
    // Of two ranks each has a single peer.
    return Pairs(bytes, (p - 1) / n, beyond, n > 2 ? OwnCard() : std::min(OwnCard(), PairCeiling()));
  }

  const GroupLayout& layout_;
  const CollectiveSpec& spec_;
  const CollectiveAlgorithm algorithm_;
  const CollectiveProtocol protocol_;
};

Status CheckNetwork(const ClusterSpec& cluster) {
  if (cluster.slow_link)
    return InvalidInput("cluster.slow_link is given without cluster.topology, which names the links");
  return Ok();
}

}  // namespace

std::vector<std::vector<int>> RanksByNode(const std::vector<int>& ranks, int devices_per_node) {
  std::map<int, std::vector<int>> by_node;
  for (int rank : ranks) by_node[rank / devices_per_node].push_back(rank);
  std::vector<std::vector<int>> nodes;
  for (auto& [node, members] : by_node) nodes.push_back(std::move(members));
  return nodes;
}

GroupLayout PlaceOnNodes(const Group& group, const ClusterSpec& cluster) {
  const int devices = static_cast<int>(std::max<int64_t>(cluster.devices_per_node, 1));
  std::vector<int> node_of = group.ranks;
  for (int& node : node_of) node /= devices;
  if (!std::is_sorted(node_of.begin(), node_of.end())) std::sort(node_of.begin(), node_of.end());
  GroupLayout layout;
  layout.ranks = layout.ranks_per_node = static_cast<int>(node_of.size());
  layout.nodes = 0;
  for (auto node = node_of.begin(); node != node_of.end(); ++layout.nodes) {
    const auto next = std::upper_bound(node, node_of.end(), *node);
    layout.ranks_per_node = std::min(layout.ranks_per_node, static_cast<int>(next - node));
    node = next;
  }
  return layout;
}

Result<LinkRates> LinkWithinNodes(const ClusterSpec& cluster, const LinkSpec& link,
                                  const DeviceSpec& device) {
  WT_ASSIGN_OR_RETURN(const LinkRates rates, IntraNodeRates(link, device.intra_node));
  if (rates.is_mesh && cluster.devices_per_node > LinkRates::kMostOfMesh)
    return InvalidInput(
        "cluster.devices_per_node is {}, expected at most {} for nvlink2_mesh: larger nodes have switches "
        "(cluster.network.intra_node: nvlink2)",
        cluster.devices_per_node, LinkRates::kMostOfMesh);
  return rates;
}

Result<GroupLayout> LayOutGroup(const Group& group, const ClusterSpec& cluster, const DeviceSpec& device) {
  WT_RETURN_IF_ERROR(CheckNetwork(cluster));
  GroupLayout layout = PlaceOnNodes(group, cluster);
  WT_ASSIGN_OR_RETURN(const LinkRates link, LinkWithinNodes(cluster, cluster.network.intra_node, device));
  layout.link = link.AmongRanks(layout.ranks_per_node);
  if (layout.nodes == 1) return layout;
  const int64_t devices = std::max<int64_t>(cluster.devices_per_node, 1);
  WT_ASSIGN_OR_RETURN(const NicRates nic, CardRates(cluster.network, devices, device.ToCards()));
  const double has = static_cast<double>(cluster.network.nics_per_node) / static_cast<double>(devices);
  const double busy = std::min(has, device.ToCards() / nic.nominal);  // the cards that one device can fill
  const double cards = busy * layout.ranks_per_node;
  layout.cards = std::max(static_cast<int>(cards + 0.5), 1);
  layout.cards_nominal = nic.nominal * cards;
  layout.cards_achieved = AchievedOfDevice(nic, cluster.network, has, device.ToCards()) *
                          static_cast<double>(layout.ranks_per_node);
  layout.net_latency = nic.latency;
  return layout;
}

NcclCommunicator CommunicatorOf(const GroupLayout& layout, const CollectiveSpec& spec) {
  NcclCommunicator c{.ranks = layout.ranks,
                     .nodes = layout.nodes,
                     .generation = spec.generation,
                     .cpu = spec.cpu,
                     .has_nvlink = layout.link.is_nvlink,
                     .allows_ll128 = layout.link.is_nvlink,
                     .has_equal_channels = layout.nodes == 1,
                     .ring = {},
                     .tree = {},
                     .nvls = {},
                     .channels = layout.nodes > 1 ? spec.channels_inter : spec.channels_intra,
                     .link_latency = layout.link.latency,
                     .net_latency = layout.net_latency};
  if (layout.nodes == 1) SearchNode(layout, c);
  else SearchNodes(layout, c);
  return c;
}

NcclCommunicator AchievedBy(const NcclCommunicator& communicator, const GroupLayout& layout) {
  NcclCommunicator achieved = communicator;
  Bandwidth ring = layout.link.ring;
  if (layout.nodes > 1 && layout.ranks_per_node == 1) ring = layout.cards_achieved;
  else if (layout.nodes > 1) ring = std::min(ring, layout.cards_achieved);
  const Bandwidth channel = ring * (1.0 / communicator.ring.channels);
  achieved.ring.intra = achieved.ring.inter = channel;
  if (layout.nodes == 1) {
    const double share = channel / communicator.ring.intra;
    achieved.tree.intra = achieved.tree.inter = communicator.tree.intra * share;
    return achieved;
  }
  const double most = communicator.generation == GpuGeneration::kHopper ? 1 : 2;  // as NCCL's search finds
  achieved.tree.inter = channel;
  achieved.tree.intra = std::min(communicator.tree.intra, channel * most);
  if (communicator.nvls.channels > 0)
    achieved.nvls.inter = layout.cards_achieved * (1.0 / communicator.nvls.channels);
  return achieved;
}

std::string_view Name(Pattern pattern) {
  constexpr std::array<std::string_view, 8> kNames = {"ring", "tree",         "nvls",     "nvls_tree",
                                                      "pat",  "hierarchical", "messages", "relayed"};
  return kNames[static_cast<size_t>(pattern)];
}

Result<CollectiveTime> CollectiveTimeOf(const OpKind& kind, const GroupLayout& layout,
                                        const CollectiveSpec& spec, CollectiveAlgorithm algorithm,
                                        CollectiveProtocol protocol) {
  WT_CHECK_GT(layout.ranks, 1);
  if (algorithm == CollectiveAlgorithm::kNvls && !HasNvls(spec.generation))
    return InvalidInput(
        "cluster.network.algorithm is nvls, expected another: this device's switches do not reduce");
  return Model(layout, spec, algorithm, protocol).TimeOf(kind);
}

}  // namespace windtunnel
