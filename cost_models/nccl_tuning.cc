#include "cost_models/nccl_tuning.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/check.h"

namespace windtunnel {
namespace {

using Algorithm = NcclAlgorithm;
using Protocol = NcclProtocol;

// All figures are of NCCL 2.28.9, src/graph/tuning.cc: latencies in microseconds, bandwidths in GB/s.
using ByProtocol = std::array<double, 3>;              // LL, LL128, Simple
using ByAlgorithm = std::array<ByProtocol, 5>;         // tree, ring, nvls, nvls tree, pat
using ByScale = std::array<double, 3>;                 // one node, two, more
using ByGeneration = std::array<ByScale, 4>;           // Volta, Ampere, Hopper, Blackwell
enum class Hop : uint8_t { kNvlink, kPci, kNetwork };  // rows of kHopLatency

constexpr ByAlgorithm kBaseLatency = {
    {{6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}, {0, 0, 0}, {0, 0, 0}, {8.0, 8.0, 8.0}}};
constexpr std::array<ByAlgorithm, 3> kHopLatency = {
    {{{{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}, {0, 0, 25}, {0, 0, 25}, {0, 0, 4.0}}},
     {{{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}, {0, 0, 0}, {0, 0, 0}, {0, 0, 4.0}}},
     {{{5.0, 8.5, 14}, {2.7, 4.0, 14.0}, {0, 0, 18}, {0, 0, 20.9}, {0, 0, 14}}}}};
constexpr ByGeneration kLlCeiling = {{{39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141, 45, 35}, {282, 90, 70}}};
constexpr ByGeneration kRingLl128Ceiling = {
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}}};
constexpr ByGeneration kTreeLl128Ceiling = {
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}}};
constexpr ByGeneration kTreeCeiling = {
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}}};
constexpr ByGeneration kNvlsTreeCeiling = {
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96.0, 43.8}}};
constexpr std::array<double, 4> kNvlsEfficiency = {0, 0, 0.85, 0.74};
// By powers of two from 64 B to 256 MiB.
constexpr std::array<std::array<double, 23>, 3> kTreeCorrection = {
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};
// The most ranks per node for all-gathers and reduce-scatters by NVLS (NCCL_MAX_NVLS_ARITY, enqueue.cc:1802).
constexpr double kMostNvlsRanks = 32;
constexpr int64_t kSmallestCorrected = 64;
constexpr double kPatPerRank = 2.8;
constexpr double kPatOverlap = 3.5;

bool IsGatherOrScatter(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
}
bool IsPipelined(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce;
}

double InGBps(Bandwidth bandwidth) { return bandwidth / GBps(1); }

// The table of one communicator.
class Tuning {
 public:
  Tuning(CollectiveKind kind, const NcclCommunicator& communicator)
      : kind_(kind), c_(communicator), generation_(static_cast<size_t>(communicator.generation)) {
    scale_ = std::min(c_.nodes, 3) - 1;
    // Across nodes, NCCL's rows for LL are those of host CPUs, not of GPU generations.
    ll_ceiling_ = kLlCeiling[c_.nodes == 1 ? generation_ : c_.cpu == HostCpu::kAmd ? 1 : 0][scale_];
  }

  std::vector<NcclEntry> Run() const {
    std::vector<NcclEntry> table;
    for (Algorithm algorithm :
         {Algorithm::kTree, Algorithm::kRing, Algorithm::kNvls, Algorithm::kNvlsTree, Algorithm::kPat}) {
      if (!Has(algorithm)) continue;
      for (Protocol protocol : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
        if (!Has(algorithm, protocol)) continue;
        const double bandwidth = BusBandwidth(algorithm, protocol) * MessageShare(algorithm);
        if (bandwidth > 0)
          table.push_back({algorithm, protocol, Microseconds(Latency(algorithm, protocol)), GBps(bandwidth)});
      }
    }
    return table;
  }

 private:
  const NcclGraph& GraphOf(Algorithm algorithm) const {
    if (algorithm == Algorithm::kRing) return c_.ring;
    return algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree ? c_.nvls : c_.tree;
  }

  bool Has(Algorithm algorithm) const {
    const bool all_reduce = kind_ == CollectiveKind::kAllReduce;
    const NcclGraph& graph = GraphOf(algorithm);
    if (graph.channels == 0) return false;
    switch (algorithm) {
      case Algorithm::kRing:
        return true;
      case Algorithm::kTree:
        return all_reduce;
      case Algorithm::kNvls:  // beyond one node it needs CollNet
        return graph.channels >= 2 && c_.nodes == 1 &&
               (all_reduce || (IsGatherOrScatter(kind_) && c_.ranks_per_node() <= kMostNvlsRanks));
      case Algorithm::kNvlsTree:
        return graph.channels >= 2 && c_.nodes > 1 && all_reduce;
      case Algorithm::kPat:  // by default
        return IsGatherOrScatter(kind_) && c_.ranks == c_.nodes;
    }
    return false;
  }
  bool Has(Algorithm algorithm, Protocol protocol) const {
    if (protocol == Protocol::kSimple) return true;
    if (algorithm != Algorithm::kTree && algorithm != Algorithm::kRing) return false;
    return protocol == Protocol::kLl || c_.allows_ll128;
  }

  double BusBandwidth(Algorithm algorithm, Protocol protocol) const {
    const NcclGraph& graph = GraphOf(algorithm);
    const double one = InGBps(c_.nodes <= 2 ? graph.intra : graph.inter);
    switch (algorithm) {
      case Algorithm::kRing:
        return RingBus(protocol, one * graph.channels);
      case Algorithm::kTree:
        return TreeBus(protocol, one * graph.channels);
      case Algorithm::kPat:
        return one * graph.channels * 0.75;
      case Algorithm::kNvls:
      case Algorithm::kNvlsTree:
        return NvlsBus(algorithm);
    }
    return 0;
  }
  double RingBus(Protocol protocol, double bus) const {
    if (protocol == Protocol::kLl) return std::min(ll_ceiling_, bus * 0.5);
    if (protocol == Protocol::kSimple) return bus;
    return std::min(bus * 0.92, c_.ring.channels * kRingLl128Ceiling[generation_][scale_]);
  }
  double TreeBus(Protocol protocol, double bus) const {
    bus = std::min(bus * 0.92, c_.tree.channels * kTreeCeiling[generation_][scale_]);
    if (protocol == Protocol::kLl) bus = std::min(bus / 3.8, ll_ceiling_);
    if (protocol == Protocol::kLl128)
      bus = std::min(bus * (c_.nodes == 1 ? 7.0 / 9 : 120.0 / 128),
                     c_.tree.channels * kTreeLl128Ceiling[generation_][scale_]);
    return c_.has_plain_trees ? bus * 0.85 : bus;
  }
  double NvlsBus(Algorithm algorithm) const {
    const double channels = c_.nvls.channels, per_node = c_.ranks_per_node();
    const double passes = kind_ == CollectiveKind::kAllReduce ? 2.0 : (per_node - 1) / per_node;
    const double intra =
        InGBps(c_.nvls.intra) * kNvlsEfficiency[generation_] * (channels - 1) / channels * passes;
    const bool is_tree = algorithm == Algorithm::kNvlsTree;
    const double inter = InGBps(c_.nvls.inter) * (c_.nodes <= 2 && is_tree ? 2 : 1);
    const double ceiling =
        is_tree ? kNvlsTreeCeiling[generation_][scale_] : std::numeric_limits<double>::infinity();
    return channels * std::min({intra, inter, ceiling});
  }

  // The bandwidth for the message over that of the bus.
  double MessageShare(Algorithm algorithm) const {
    if (algorithm != Algorithm::kRing && IsGatherOrScatter(kind_)) return 1;
    if (algorithm == Algorithm::kTree) return 0.5;
    return static_cast<double>(c_.ranks) / Steps();
  }
  int Steps() const {
    if (IsPipelined(kind_)) return c_.ranks;
    return (kind_ == CollectiveKind::kAllReduce ? 2 : 1) * (c_.ranks - 1);
  }

  Hop IntraHop() const { return c_.has_nvlink ? Hop::kNvlink : Hop::kPci; }
  static double HopLatency(Hop hop, Algorithm algorithm, Protocol protocol) {
    return kHopLatency[static_cast<size_t>(hop)][static_cast<size_t>(algorithm)]
                      [static_cast<size_t>(protocol)];
  }
  // A message to another node with Simple is flushed there, so the network's own latency counts twice.
  double NetLatency(Algorithm algorithm, Protocol protocol) const {
    const Algorithm row = c_.ranks == c_.nodes ? Algorithm::kTree : algorithm;
    return HopLatency(Hop::kNetwork, row, protocol) +
           c_.net_latency / Microseconds(1) * (protocol == Protocol::kSimple ? 2 : 1);
  }

  double Latency(Algorithm algorithm, Protocol protocol) const {
    const double base = kBaseLatency[static_cast<size_t>(algorithm)][static_cast<size_t>(protocol)];
    const double hop = HopLatency(IntraHop(), algorithm, protocol) + c_.link_latency / Microseconds(1);
    const double net = NetLatency(algorithm, protocol);
    const double levels = std::bit_width(static_cast<unsigned>(c_.nodes)) - 1;  // floor(log2 N)
    switch (algorithm) {
      case Algorithm::kRing:
        return base + (IsPipelined(kind_) ? PipelineLatency(protocol) : RingLatency(protocol, hop, net));
      case Algorithm::kTree:
        return base + 2 * ((c_.ranks / c_.nodes - 1) * hop + levels * net);
      case Algorithm::kNvls:
        return hop;
      case Algorithm::kNvlsTree:
        return base + hop + 2 * levels * net;
      case Algorithm::kPat:
        return base + levels * (net / kPatOverlap) + c_.ranks * kPatPerRank;
    }
    return base;
  }
  double RingLatency(Protocol protocol, double hop, double net) const {
    const double overhead = (c_.cpu == HostCpu::kAmd ? 2.0 : 1.0) * (protocol == Protocol::kSimple ? 3 : 1);
    if (c_.nodes > 1) hop = std::max(hop, overhead);
    const int crossing = (kind_ == CollectiveKind::kAllReduce ? 2 : 1) * (c_.nodes - 1);
    return (Steps() - crossing) * hop + crossing * net;
  }
  double PipelineLatency(Protocol protocol) const {
    const Hop link = c_.nodes == 1 ? IntraHop() : Hop::kNetwork;
    if (c_.has_equal_channels) return HopLatency(link, Algorithm::kRing, protocol);
    const Algorithm row = protocol == Protocol::kSimple ? Algorithm::kTree : Algorithm::kRing;
    return c_.ranks * HopLatency(link, row, protocol);
  }

  const CollectiveKind kind_;
  const NcclCommunicator& c_;
  const size_t generation_;
  size_t scale_ = 0;
  double ll_ceiling_ = 0;
};

}  // namespace

std::string_view Name(NcclAlgorithm algorithm) {
  constexpr std::array<std::string_view, 5> kNames = {"tree", "ring", "nvls", "nvls_tree", "pat"};
  return kNames[static_cast<size_t>(algorithm)];
}
std::string_view Name(NcclProtocol protocol) {
  constexpr std::array<std::string_view, 3> kNames = {"ll", "ll128", "simple"};
  return kNames[static_cast<size_t>(protocol)];
}

std::vector<NcclEntry> NcclTable(CollectiveKind kind, const NcclCommunicator& communicator) {
  return Tuning(kind, communicator).Run();
}

double TreeCorrection(NcclProtocol protocol, Bytes bytes, bool interpolated) {
  const auto& table = kTreeCorrection[static_cast<size_t>(protocol)];
  if (bytes.count() < kSmallestCorrected) return interpolated ? table.front() : 1;
  const size_t below = std::bit_width(static_cast<uint64_t>(bytes.count() / kSmallestCorrected)) - 1;
  if (below >= table.size()) return 1;
  if (!interpolated) return table[below];
  const double share =
      static_cast<double>(bytes.count()) / static_cast<double>(kSmallestCorrected << below) - 1;
  const double above = below + 1 < table.size() ? table[below + 1] : 1;
  return table[below] + (above - table[below]) * share;
}

double LatencyFactor(CollectiveKind kind, const NcclEntry& entry, Bytes bytes,
                     const NcclCommunicator& communicator) {
  const bool applies = entry.algorithm == Algorithm::kRing && entry.protocol == Protocol::kSimple &&
                       communicator.nodes > 1 && kind == CollectiveKind::kAllReduce &&
                       bytes.count() / (int64_t{communicator.channels} * communicator.ranks) >= 64;
  if (!applies) return 1;
  return communicator.generation == GpuGeneration::kVolta ? 1.9 : 1.4;
}

Duration EstimatedTime(CollectiveKind kind, const NcclEntry& entry, Bytes bytes,
                       const NcclCommunicator& communicator) {
  Bandwidth bandwidth = entry.bandwidth;
  if (entry.algorithm == Algorithm::kTree)
    bandwidth = bandwidth * TreeCorrection(entry.protocol, bytes, /*interpolated=*/false);
  return entry.latency.Scaled(LatencyFactor(kind, entry, bytes, communicator)) + bytes / bandwidth;
}

const NcclEntry& ChooseAsNccl(CollectiveKind kind, const std::vector<NcclEntry>& table, Bytes bytes,
                              const NcclCommunicator& communicator) {
  WT_CHECK(!table.empty());
  return *std::min_element(table.begin(), table.end(), [&](const NcclEntry& a, const NcclEntry& b) {
    return EstimatedTime(kind, a, bytes, communicator) < EstimatedTime(kind, b, bytes, communicator);
  });
}

}  // namespace windtunnel
