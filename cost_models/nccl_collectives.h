// The time of a collective on accelerators that are not at hand. NCCL's own model (cost_models/nccl_tuning.h)
// chooses algorithm and protocol, at the bandwidths that NCCL's search of the machine would find. The time is
// that model's at the bandwidths that collectives were measured to achieve:
//
//   t = latency + b / achieved bandwidth + start
//
// Achieved bandwidths:
//
//   rings              within a node what nccl-tests measure of the link; across nodes also at most the
//                      group's share of its nodes' network cards, at what rings reach of them (if only p of a
//                      node's d ranks are in the group, d/p such groups share the cards)
//   trees, switches    NCCL's estimate times the same ratio of achieved to found, at most what cards carry
//   NVSwitch           reductions within one node, and across nodes on Blackwell: the measured rate R. Each
//                      of n devices sends and receives the message and its part of the sum: b (1 + 1/n) / R
//
//   All-gather of 64 MiB among 8 A100s of a node (230 GB/s, start 28 us): NCCL estimates 32.2 + 244.7 us for
//   Simple and 27.3 + 265.9 for LL128 (at 240 GB/s), so Simple, in 32.2 + 255.3 + 28 = 315.5 us.
//   All-reduce of 1 GiB among 8 H100s (R = 308 GB/s, start 2 us) by the switch: 25 + 2 us,
//   1 GiB x 9/8 / 308 GB/s = 3922 us, and 73.8 us until that rate is reached (75 us x b / (b + 16 MiB)):
//   4022.7 us. (Measured: 4029 and 4253 us.)
//
// Operations that NCCL has no model of:
//
//   send and receive   one hop; within a node at the ring's rate, across nodes over a card, at most 21.2 GB/s
//   gather, scatter    messages between the root and each other rank, all at once: (p-1)/n b over the root's
//                      link, the rest over its card
//   all-to-all         the same for every rank, from its own send buffer of b bytes
//   hierarchical       all-gather: among the ranks at the same place of their nodes, then within nodes;
//                      reduce-scatter in the opposite order; all-reduce: reduce-scatter within nodes,
//                      all-reduces of the parts between them, all-gather within nodes
//   token exchange     DeepEP's kernels, not a collective of NCCL. A rank has tokens of b bytes, of which the
//                      share q goes to one rank and the share u to one node. Each of the p ranks of each of N
//                      nodes sends N q b to every other rank of its node (its own tokens, and those that it
//                      relays for its peers, the ranks at its place of other nodes), and u b to its peer in
//                      each other node, both at once:
//                        max(N (p-1) q b / link, (N-1) u b / card)
//                      at what those kernels reach of links and cards, with the latency of two hops. If each
//                      token counts once per node, including its own, as DeepEP counts, 16 ranks of 2 nodes
//                      reach 90 GB/s, 32 of 4 nodes 60, 64 of 8 nodes with tokens in at most 4 of them 51.
//                      (DeepEP V2, H100 class, 7168 columns, top 8: 90 and 81, 61 and 61; its first version
//                      on H800s 51 among 64.)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cost_models/device_spec.h"
#include "cost_models/nccl_tuning.h"
#include "plan/step_program.h"
#include "scenarios/scenario.h"
#include "topology/link_rates.h"

namespace windtunnel {

// The share of network cards' bandwidth that Blackwell's trees between nodes reach, with reductions in the
// switch of each node: all-reduces of 2 to 16 GiB on 2 x 8 B200s with 8 x 400 Gb/s, 371, 365 and 383 GB/s of
// 400 (Lambda, GCP A4, Vultr).
inline constexpr double kBlackwellCardsByTrees = 0.93;

// The shares that DeepEP's kernels reach of NVLink (160 GB/s of 200 among 8 H800s, 337 of 450 among 8 H20s,
// 643 to 740 of 900 among 8 of Blackwell, in each case including the eighth that stays where it is) and of
// network cards (90 and 61 GB/s among 2 and 4 nodes with 50 GB/s a rank, of which 1/2 and 3/4 leave the
// node). DeepEP's README and docs/legacy.md, its issue 16, pplx-kernels' issue 10.
inline constexpr double kOfLinkByDeepEp = 0.67, kOfCardsByDeepEp = 0.9;

// How a group's ranks are placed in the cluster, and what links they have.
struct GroupLayout {
  int ranks = 1;
  int nodes = 1;
  int ranks_per_node = 1;  // on the node that has the fewest
  LinkRates link;          // between devices of a node
  // The group's cards on each node, and their joint bandwidth in each direction; none on one node.
  int cards = 0;
  Bandwidth cards_nominal, cards_achieved;
  Duration net_latency;

  bool operator==(const GroupLayout&) const = default;
};
// The ranks grouped by node, in order.
std::vector<std::vector<int>> RanksByNode(const std::vector<int>& ranks, int devices_per_node);
// The group's ranks and nodes alone.
GroupLayout PlaceOnNodes(const Group& group, const ClusterSpec& cluster);
// The links of a node: `link`, or the device's own if it names none. Errors: InvalidInput for what joins no
// devices, and for more of them than a mesh has.
Result<LinkRates> LinkWithinNodes(const ClusterSpec& cluster, const LinkSpec& link, const DeviceSpec& device);
// Without a topology (cost_models/collective_traffic.h has the version with one). Errors: those of the rates,
// InvalidInput for a slow link.
Result<GroupLayout> LayOutGroup(const Group& group, const ClusterSpec& cluster, const DeviceSpec& device);

// What NCCL's search of the machine finds for the group, modelled on the systems in
// tests/cost_models/data/nccl_tuning.json. For example, 8 cards on 2 or more nodes are 8 rings of NCCL's next
// lower speed.
NcclCommunicator CommunicatorOf(const GroupLayout& layout, const CollectiveSpec& spec);
// The same communicator at the measured bandwidths.
NcclCommunicator AchievedBy(const NcclCommunicator& communicator, const GroupLayout& layout);

// The pattern that a collective runs by, and its time.
enum class Pattern : uint8_t { kRing, kTree, kNvls, kNvlsTree, kPat, kHierarchical, kPairs, kRelayed };
struct CollectiveTime {
  Pattern pattern = Pattern::kRing;
  Duration time;
  Duration latency;                           // the part of `time` that a message of no bytes takes
  std::optional<NcclProtocol> protocol = {};  // none for several levels, each with its own
};
std::string_view Name(Pattern pattern);  // "ring"

// A send with its receive is a Send. Errors: InvalidInput for an algorithm that the device cannot have.
// REQUIRES: `kind` is communication, of a group of two ranks or more.
Result<CollectiveTime> CollectiveTimeOf(const OpKind& kind, const GroupLayout& layout,
                                        const CollectiveSpec& spec,
                                        CollectiveAlgorithm algorithm = CollectiveAlgorithm::kAuto,
                                        CollectiveProtocol protocol = CollectiveProtocol::kAuto);

}  // namespace windtunnel
