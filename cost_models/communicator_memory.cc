#include "cost_models/communicator_memory.h"

#include <algorithm>

#include "plan/axes.h"

namespace windtunnel {
namespace {

using Purpose = RankGroups::Purpose;

// Ranks to which each rank of the groups sends messages (with rings and trees only: 0).
int64_t PeersOf(const RankGroups& groups, const ParallelSpec& parallel) {
  const int64_t others = groups.ranks - 1;
  switch (groups.purpose) {
    case Purpose::kContext:  // keys and values go around a ring, or from each rank to each other
      if (parallel.context.kind == ContextKind::kRing) return std::min<int64_t>(others, 2);
      return parallel.context.kind == ContextKind::kUlysses ? others : 0;
    case Purpose::kPipeline:
      return std::min<int64_t>(others, 2);
    case Purpose::kExpert:
      return others;
    default:
      return 0;
  }
}

// For messages and all-to-alls. For a group with unequal parts on its nodes, assumes the most that a node can
// have.
Bytes MemoryForPeers(const RankGroups& groups, int64_t peers, int64_t devices_per_node,
                     const CommunicatorMemorySpec& spec) {
  if (peers == 0) return Bytes(0);
  const bool is_within = groups.LieWithin(devices_per_node);
  const int64_t on_node = std::clamp<int64_t>(devices_per_node / groups.stride, 1, groups.ranks);
  const int64_t near = std::min(peers, on_node - 1);
  return spec.channel * (near * (is_within ? spec.peer_channels : spec.network_peer_channels)) +
         (is_within ? Bytes(0) : spec.network);
}

}  // namespace

Bytes CommunicatorMemory(const Scenario& scenario, const CommunicatorMemorySpec& spec) {
  const int64_t world = scenario.WorldSize();
  if (world == 1) return Bytes(0);
  Bytes bytes = spec.first;
  const ParallelSpec& parallel = scenario.parallel;
  for (const RankGroups& groups : RankGroupsOf(scenario)) {
    const bool has_own_buffers = parallel.expert.dispatcher != ExpertDispatcher::kAllToAll;  // DeepEP's
    if (groups.purpose == Purpose::kExpert && has_own_buffers) continue;
    if (groups.ranks < world) bytes += spec.further;
    bytes += MemoryForPeers(groups, PeersOf(groups, parallel), scenario.cluster.devices_per_node, spec);
  }
  return bytes;
}

}  // namespace windtunnel
