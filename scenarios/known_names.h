// Known names of networks and topologies in a scenario's `cluster`.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace windtunnel {

// Presets of `cluster.network` and, with switches in between (topology/presets.cc), of `cluster.topology`.
// From NVIDIA's datasheets of DGX A100, H100, B200 and B300 and of GB200 and GB300 NVL72: one network card
// per device. An NVL72 rack, whose links all meet in switches, has 72 cards. The other presets leave the
// links within a node to the device. Those of eight cards have one per device, too (HGX servers), and the
// slower ones four that devices share.
struct KnownNetwork {
  std::string_view name, intra, inter;  // kinds of links; empty: the device's own
  double gbits = 0;                     // of one card
  int64_t cards = 0;                    // of one node

  bool has_card_per_device = true;

  // The cards of a node with `devices` devices, or of which only that many are used.
  int64_t CardsOf(int64_t devices) const { return has_card_per_device ? std::min(cards, devices) : cards; }
};
inline constexpr std::array<KnownNetwork, 12> kKnownNetworks = {
    {{"dgx-1", "nvlink2_mesh", "infiniband", 100, 4, false},
     {"dgx-2", "nvlink2", "infiniband", 100, 8, false},
     {"dgx-a100", "nvlink3", "infiniband", 200, 8},
     {"dgx-h100", "nvlink4", "infiniband", 400, 8},
     {"dgx-b200", "nvlink5", "infiniband", 400, 8},
     {"dgx-b300", "nvlink5", "infiniband", 800, 8},
     {"gb200-nvl72", "nvlink5", "infiniband", 400, 72},
     {"gb300-nvl72", "nvlink5", "infiniband", 800, 72},
     {"infiniband-8x200g", "", "infiniband", 200, 8},
     {"infiniband-8x400g", "", "infiniband", 400, 8},
     {"ethernet-4x100g", "", "ethernet", 100, 4, false},
     {"omnipath-4x100g", "", "omnipath", 100, 4, false}}};

// Null for an unknown name.
inline const KnownNetwork* FindKnownNetwork(std::string_view name) {
  const auto* found = std::find_if(kKnownNetworks.begin(), kKnownNetworks.end(),
                                   [name](const KnownNetwork& known) { return known.name == name; });
  return found == kKnownNetworks.end() ? nullptr : found;
}

// Presets of `cluster.topology`: the known networks, and one (rail-fat-tree) whose links the scenario gives.
// A scalable unit of a DGX H100 SuperPOD has 32 nodes on 8 leaf switches. The leaf switches of the other
// topologies are assumed to have 32 ports to nodes, too.
struct KnownTopology {
  std::string_view name;
  // The k-th cards of all nodes share leaf switches; otherwise all cards do.
  bool has_rails = false;
  int64_t nodes_per_leaf = 0;  // the default; the scenario may give another
};
inline constexpr std::array<KnownTopology, 11> kKnownTopologies = {{{"dgx-a100", true, 32},
                                                                    {"dgx-h100", true, 32},
                                                                    {"dgx-b200", true, 32},
                                                                    {"dgx-b300", true, 32},
                                                                    {"gb200-nvl72", true, 32},
                                                                    {"gb300-nvl72", true, 32},
                                                                    {"infiniband-8x200g", true, 32},
                                                                    {"infiniband-8x400g", true, 32},
                                                                    {"rail-fat-tree", true, 32},
                                                                    {"ethernet-4x100g", false, 8},
                                                                    {"omnipath-4x100g", false, 8}}};

// Whether `device` (of `cluster.device` or --profile) is the path of a hardware profile rather than the name
// of one.
inline bool NamesProfileFile(std::string_view device) {
  return device.find('/') != std::string_view::npos || device.ends_with(".json");
}

// Examples of cluster.device for editors: this machine's two, and the profiles of cost_models/profiles.
inline constexpr std::string_view kKnownDevices[] = {"cpu",
                                                     "cuda",
                                                     "a100-pcie-80g",
                                                     "a100-sxm-40g",
                                                     "a100-sxm-80g",
                                                     "a10g-24g",
                                                     "a800-sxm-80g",
                                                     "b200-sxm-180g",
                                                     "b300-sxm-270g",
                                                     "gb200-nvl72-186g",
                                                     "gb300-nvl72-279g",
                                                     "h100-nvl-94g",
                                                     "h100-pcie-80g",
                                                     "h100-sxm-80g",
                                                     "h100-sxm-96g-500w",
                                                     "h20-sxm-96g",
                                                     "h200-sxm-141g",
                                                     "h800-sxm-80g",
                                                     "l4-24g",
                                                     "l40s-48g",
                                                     "rtx-3090-24g",
                                                     "rtx-4090-24g",
                                                     "rtx-5090-32g",
                                                     "rtx-6000-ada-48g",
                                                     "rtx-a6000-48g",
                                                     "rtx-pro-6000-96g",
                                                     "t4-16g",
                                                     "v100-sxm2-16g",
                                                     "v100-sxm2-32g"};

}  // namespace windtunnel
