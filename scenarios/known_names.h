// Names in a scenario's `cluster` that stand for more than they say.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace windtunnel {

// Of `cluster.network`, and with switches between (topology/presets.cc) of `cluster.topology`. NVIDIA's datasheets of DGX A100, H100, B200
// and B300 and of GB200 and GB300 NVL72: a card for each device, of which a rack, whose links all meet in switches, has 72. The others leave the links within a node to the device.
struct KnownNetwork {
  std::string_view name, intra, inter;  // kinds of links; empty: the device's
  double gbits = 0;                     // of a card
  int64_t cards = 0;                    // of a node

  // Of a node that has, or of which one uses, so many devices: NVIDIA's have a card for each.
  int64_t CardsOf(int64_t devices) const { return intra.empty() ? cards : std::min(cards, devices); }
};
inline constexpr std::array<KnownNetwork, 8> kKnownNetworks = {
    {{"dgx-a100", "nvlink3", "infiniband", 200, 8},
     {"dgx-h100", "nvlink4", "infiniband", 400, 8},
     {"dgx-b200", "nvlink5", "infiniband", 400, 8},
     {"dgx-b300", "nvlink5", "infiniband", 800, 8},
     {"gb200-nvl72", "nvlink5", "infiniband", 400, 72},
     {"gb300-nvl72", "nvlink5", "infiniband", 800, 72},
     {"ethernet-4x100g", "", "ethernet", 100, 4},
     {"omnipath-4x100g", "", "omnipath", 100, 4}}};

// Null for another name.
inline const KnownNetwork* FindKnownNetwork(std::string_view name) {
  const auto* found = std::find_if(kKnownNetworks.begin(), kKnownNetworks.end(),
                                   [name](const KnownNetwork& known) { return known.name == name; });
  return found == kKnownNetworks.end() ? nullptr : found;
}

// Of `cluster.topology`: the known networks, and one whose links are the scenario's. A scalable unit of a DGX H100 SuperPOD has 32 nodes on 8
// leaf switches. Leaf switches of the others are taken to have 32 ports to nodes, too.
struct KnownTopology {
  std::string_view name;
  bool has_rails = false;      // the nodes' k-th cards share leaf switches; else all cards do
  int64_t nodes_per_leaf = 0;  // unless the scenario says so
};
inline constexpr std::array<KnownTopology, 9> kKnownTopologies = {{{"dgx-a100", true, 32},
                                                                   {"dgx-h100", true, 32},
                                                                   {"dgx-b200", true, 32},
                                                                   {"dgx-b300", true, 32},
                                                                   {"gb200-nvl72", true, 32},
                                                                   {"gb300-nvl72", true, 32},
                                                                   {"rail-fat-tree", true, 32},
                                                                   {"ethernet-4x100g", false, 8},
                                                                   {"omnipath-4x100g", false, 8}}};

// Whether `cluster.device`, or what --profile says, is the path of a profile rather than the name of one.
inline bool NamesProfileFile(std::string_view device) {
  return device.find('/') != std::string_view::npos || device.ends_with(".json");
}

}  // namespace windtunnel
