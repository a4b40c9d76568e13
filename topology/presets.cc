// Makes the topologies that a scenario can name, and those that it spells out.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "scenarios/known_names.h"
#include "topology/link_rates.h"
#include "topology/topology.h"

namespace windtunnel {
namespace {

const KnownTopology* FindPreset(const std::string& name) {
  const auto found = std::find_if(kKnownTopologies.begin(), kKnownTopologies.end(),
                                  [&](const KnownTopology& known) { return known.name == name; });
  return found == kKnownTopologies.end() ? nullptr : &*found;
}

// The vertices of a preset's nodes and switches.
class FatTree {
 public:
  FatTree(const ClusterSpec& cluster, const KnownTopology& preset, const LinkRates& link,
          const NicRates& card, int64_t cards, Bandwidth to_cards)
      : cluster_(cluster), preset_(preset), link_(link), card_(card), cards_(cards), to_cards_(to_cards) {
    nodes_per_leaf_ =
        cluster.topology.nodes_per_leaf > 0 ? cluster.topology.nodes_per_leaf : preset.nodes_per_leaf;
  }

  TopologyParts Build() {
    for (int64_t node = 0; node < cluster_.nodes; ++node) AddNode(node);
    if (leaves_.size() > 1) AddSpine();
    return std::move(parts_);
  }

 private:
  void AddNode(int64_t node) {
    const std::string name = fmt::format("node{}", node);
    std::vector<int32_t> devices;
    for (int64_t i = 0; i < cluster_.devices_per_node; ++i)
      devices.push_back(parts_.Add(fmt::format("{}.gpu{}", name, i), VertexKind::kDevice));
    if (devices.size() > 1) {
      const int32_t center =
          parts_.Add(fmt::format("{}.{}", name, link_.is_nvlink ? "nvswitch" : "pcie"), VertexKind::kSwitch);
      for (int32_t device : devices) parts_.Join(device, center, link_.nominal);
    }
    if (cluster_.nodes > 1) AddCards(node, name, devices);
  }

  // Devices share the cards evenly, or each device has several.
  void AddCards(int64_t node, const std::string& name, const std::vector<int32_t>& devices) {
    const int64_t d = static_cast<int64_t>(devices.size());
    std::vector<int32_t> hosts;  // by device, if it has several cards
    for (int64_t device = 0; device < d && cards_ > d; ++device) {
      hosts.push_back(parts_.Add(fmt::format("{}.gpu{}.host", name, device), VertexKind::kSwitch));
      parts_.Join(devices[device], hosts.back(), to_cards_);
    }
    for (int64_t i = 0; i < cards_; ++i) {
      const int32_t nic = parts_.Add(fmt::format("{}.nic{}", name, i), VertexKind::kNic);
      for (int64_t device = 0; device < d; ++device) {
        if (hosts.empty() && device * cards_ / d == i) parts_.Join(devices[device], nic, to_cards_);
        if (!hosts.empty() && i * d / cards_ == device) parts_.Join(hosts[device], nic, card_.nominal);
      }
      const int32_t leaf = LeafOf(node / nodes_per_leaf_, preset_.has_rails ? i : 0);
      parts_.Join(nic, leaf, card_.nominal, card_.latency / 2);  // half of it at either end
      downlinks_[leaf] = downlinks_[leaf] + card_.nominal.bytes_per_second();
    }
  }

  int32_t LeafOf(int64_t unit, int64_t rail) {
    auto [entry, is_new] = leaves_.try_emplace({unit, rail}, 0);
    if (is_new) entry->second = parts_.Add(fmt::format("leaf{}", leaves_.size() - 1), VertexKind::kSwitch);
    return entry->second;
  }

  // One vertex stands for all spine switches. A leaf's link to it carries what the leaf's links to them carry
  // together.
  void AddSpine() {
    const int32_t spine = parts_.Add("spine", VertexKind::kSwitch);
    for (const auto& [leaf, bytes_per_second] : downlinks_)
      parts_.Join(leaf, spine,
                  Bandwidth::FromBytesPerSecond(bytes_per_second / cluster_.topology.oversubscription));
  }

  const ClusterSpec& cluster_;
  const KnownTopology& preset_;
  const LinkRates& link_;
  const NicRates& card_;
  const int64_t cards_;
  const Bandwidth to_cards_;
  int64_t nodes_per_leaf_ = 1;
  TopologyParts parts_;
  std::map<std::pair<int64_t, int64_t>, int32_t> leaves_;  // by unit and rail
  std::map<int32_t, double> downlinks_;                    // bytes a second, by leaf
};

Result<TopologyParts> PartsOfPreset(const ClusterSpec& cluster, const DeviceLinks& device) {
  const KnownTopology* preset = FindPreset(cluster.topology.preset);
  if (preset == nullptr) {
    std::string known;
    for (const KnownTopology& p : kKnownTopologies)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", p.name);
    return InvalidInput("cluster.topology is '{}', expected {} or nodes and links", cluster.topology.preset,
                        known);
  }
  const NetworkSpec network = NetworkOf(cluster);
  WT_ASSIGN_OR_RETURN(LinkRates link, IntraNodeRates(network.intra_node, device.intra_node));
  NicRates card;
  if (cluster.nodes > 1) {
    WT_ASSIGN_OR_RETURN(card, CardRates(network, cluster.devices_per_node, device.to_cards));
  }
  return FatTree(cluster, *preset, link, card, network.nics_per_node, device.to_cards).Build();
}

Result<TopologyParts> PartsSpelledOut(const TopologySpec& spec) {
  TopologyParts parts;
  std::map<std::string, int32_t> vertices;
  for (const TopologyNode& node : spec.nodes) {
    const VertexKind kind = node.kind == "device" ? VertexKind::kDevice
                            : node.kind == "nic"  ? VertexKind::kNic
                                                  : VertexKind::kSwitch;
    vertices[node.name] = parts.Add(node.name, kind);
  }
  for (const TopologyLink& link : spec.links) {
    for (const std::string& end : {link.from, link.to}) {
      if (!vertices.contains(end))
        return InvalidInput(
            "cluster.topology.links has an end '{}', expected the name of one of cluster.topology.nodes",
            end);
    }
    if (link.gbytes_per_s <= 0)
      return InvalidInput("cluster.topology.links: '{}' to '{}' has no bandwidth, expected gbytes_per_s",
                          link.from, link.to);
    parts.Join(vertices[link.from], vertices[link.to], GBps(link.gbytes_per_s),
               Microseconds(link.latency_us));
  }
  return parts;
}

}  // namespace

NetworkSpec NetworkOf(const ClusterSpec& cluster) {
  NetworkSpec network = cluster.network;
  const KnownNetwork* known = FindKnownNetwork(cluster.topology.preset);
  if (known == nullptr || !network.preset.empty()) return network;
  if (network.intra_node == LinkSpec{}) network.intra_node.kind = known->intra;
  if (network.inter_node == LinkSpec{})
    network.inter_node = {.kind = std::string(known->inter), .gbits_per_nic = known->gbits, .latency_us = {}};
  network.nics_per_node = known->CardsOf(cluster.devices_per_node);
  return network;
}

Result<Topology> MakeTopology(const ClusterSpec& cluster, const DeviceLinks& device) {
  const bool is_preset = !cluster.topology.preset.empty();
  WT_ASSIGN_OR_RETURN(TopologyParts parts,
                      is_preset ? PartsOfPreset(cluster, device) : PartsSpelledOut(cluster.topology));
  const auto devices =
      std::count_if(parts.vertices.begin(), parts.vertices.end(),
                    [](const TopologyVertex& vertex) { return vertex.kind == VertexKind::kDevice; });
  if (devices != cluster.nodes * cluster.devices_per_node)
    return InvalidInput(
        "cluster.topology has {} devices, expected {} (cluster.nodes {} x devices_per_node {}): the mesh "
        "does not fit",
        devices, cluster.nodes * cluster.devices_per_node, cluster.nodes, cluster.devices_per_node);
  if (parts.links.empty() && devices == 1) parts.Join(0, parts.Add("switch", VertexKind::kSwitch), GBps(1));
  return Topology::Make(std::move(parts), cluster.slow_link);
}

}  // namespace windtunnel
