#include "topology/link_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace windtunnel {
namespace {

// Ring rates: nvlink3 from all-reduces on 2 to 8 A100s, 229 to 235 GB/s (vTrain trace tables;
// stas00/ml-engineering, network); nvlink4 from all-gathers and reduce-scatters on 8 H200s, 361.4 and 362.9
// GB/s (stas00/ml-engineering); nvlink5 from those on 8 B200s, 672 and 695 GB/s (HGX B200, public cluster
// test summary). With 8 links instead of 12 and 18 (A800, H800): the same shares; an H800 reaches "about 160
// GB/s" (deepseek-ai/DeepEP). nvlink2 from all-reduces on 8 V100s of a DGX-1's kind, 129.1 GB/s at 128 MiB
// and 135.5 at 1 GiB (a log of 2019; Oracle's tutorial of BM.GPU3.8); in a DGX-2, whose links meet in
// switches, presumably as much. PCIe through the host's memory or its root complex: pcie3 7.2 GB/s,
// all-reduces on 4 V100s that found no NVLink; pcie4 15, NCCL 2.28's search (8 RTX 4090s without access to
// each other's memory reach 14.5 at 128 MiB); pcie5 presumably twice that.
constexpr std::array<KnownLink, 10> kLinks = {{{"nvlink2", 150, 132, true},
                                               {"nvlink2_mesh", 150, 132, true, /*is_mesh=*/true},
                                               {"nvlink3", 300, 230, true},
                                               {"nvlink3x8", 200, 153, true},
                                               {"nvlink4", 450, 360, true},
                                               {"nvlink4x8", 200, 160, true},
                                               {"nvlink5", 900, 672, true},
                                               {"pcie3", 16, 7.2, false},
                                               {"pcie4", 32, 15, false},
                                               {"pcie5", 64, 30, false}}};
// For a link given by its bandwidth: the mean share of the NVLinks above, 0.77, 0.80 and 0.75.
constexpr double kRingShare = 0.77;

// Shares of the cards' bandwidth that rings reach on 2 nodes: 200 Gb/s a GPU, 189.6 of 200 GB/s (OCI
// BM.GPU.B4.8, RoCE) and 188.7 of 200 (GKE a3-megagpu, TCPXO); 400 Gb/s a GPU, 328.9 of 400 (GKE a3-ultragpu,
// RoCE, all-gather); TCP without RDMA, 50.2 and 70.9 of 100 (GKE a3-highgpu, TCPX).
constexpr double kShareTo200 = 0.94, kShareBeyond200 = 0.82, kShareOfEthernet = 0.6;
constexpr double kSlowCard = 25;  // GB/s: 200 Gb/s

// libfabric's addition to NCCL's latency of a message to another node: half of the median excess, 103 us, of
// 14 all-reduces of up to 16 KiB on 2 nodes of 8 A100s (AWS p4de.24xlarge, nccl-tests), whose trees cross the
// network twice.
constexpr double kEfaLatency = 51;  // us

}  // namespace

std::span<const KnownLink> KnownLinks() { return kLinks; }

Result<LinkRates> IntraNodeRates(const LinkSpec& link, const std::string& default_kind) {
  const Duration latency = Microseconds(link.latency_us.value_or(0));
  if (link.gbytes_per_s > 0)
    return LinkRates{GBps(link.gbytes_per_s), GBps(link.gbytes_per_s * kRingShare),
                     !link.kind.starts_with("pcie"), latency, link.kind == "nvlink2_mesh"};
  const std::string& kind = link.kind.empty() ? default_kind : link.kind;
  for (const KnownLink& known : kLinks) {
    if (known.kind == kind)
      return LinkRates{GBps(known.nominal), GBps(known.ring), known.is_nvlink, latency, known.is_mesh};
  }
  std::string expected;
  for (const KnownLink& known : kLinks)
    expected += fmt::format("{}{}", expected.empty() ? "" : ", ", known.kind);
  return InvalidInput(
      "cluster.network.intra_node is '{}', expected {} or {{gbytes_per_s: …}} between accelerators", kind,
      expected);
}

// The six links of each device of a DGX-1 with V100s: of the first four devices, 0-1, 0-2 and 1-3 share one,
// 0-3, 1-2 and 2-3 two, and each has the others to a device of the other four. So two neighbours have one
// link, three are on one ring in both directions (two links), four on two (four links). Five to seven
// devices, whose rings are not known, are taken for three.
LinkRates LinkRates::AmongRanks(int ranks) const {
  constexpr double kLinksOfDevice = 6;
  if (!is_mesh || ranks >= 8) return *this;
  const double links = ranks == 2 ? 1 : ranks == 4 ? 4 : 2;
  LinkRates part = *this;
  part.nominal = nominal * (links / kLinksOfDevice);
  part.ring = ring * (links / kLinksOfDevice);
  return part;
}

Bandwidth NodeBandwidth(const NetworkSpec& network) {
  const LinkSpec& link = network.inter_node;
  if (link.gbits_per_nic == 0) return GBps(link.gbytes_per_s);
  return GBps(link.gbits_per_nic / 8 * static_cast<double>(network.nics_per_node));
}

Result<NicRates> CardRates(const NetworkSpec& network, int64_t devices, Bandwidth to_cards) {
  const LinkSpec& link = network.inter_node;
  const double cards = static_cast<double>(network.nics_per_node);
  const double devices_of_card = std::max(static_cast<double>(devices) / cards, 1.0);
  const double gbytes =
      std::min(NodeBandwidth(network) / GBps(1) / cards, to_cards * devices_of_card / GBps(1));
  if (gbytes <= 0)
    return InvalidInput(
        "cluster.network.inter_node names no bandwidth, expected gbits_per_nic: collectives span nodes");
  double rate = gbytes * kShareTo200;
  if (link.kind == "ethernet") rate = gbytes * kShareOfEthernet;
  else if (gbytes > kSlowCard) rate = std::max(kSlowCard * kShareTo200, gbytes * kShareBeyond200);
  return NicRates{GBps(gbytes), GBps(rate),
                  Microseconds(link.latency_us.value_or(link.kind == "efa" ? kEfaLatency : 0))};
}

Bandwidth AchievedOfDevice(const NicRates& card, const NetworkSpec& network, double cards,
                           Bandwidth to_cards) {
  const Bandwidth filled = card.rate * std::min(cards, to_cards / card.nominal);
  if (network.inter_node.kind == "ethernet" || card.nominal <= GBps(kSlowCard)) return filled;
  return std::max(filled, std::min(GBps(kSlowCard) * cards, to_cards) * kShareTo200);
}

}  // namespace windtunnel
