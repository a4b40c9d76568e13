#include "cost_models/communicator_memory.h"

#include <algorithm>

namespace windtunnel {
namespace {

// Ranks `stride` apart, each of which talks to `peers` others by messages (rings and trees: 0).
struct RankGroup {
  int64_t ranks = 1, stride = 1;
  int64_t peers = 0;
};

std::vector<RankGroup> GroupsOf(const Scenario& s) {
  const ParallelSpec& p = s.parallel;
  const int64_t tensor = p.tensor.size, copies = p.data.size * p.context.size, stages = p.pipeline.size;
  const int64_t neighbours = std::min<int64_t>(stages - 1, 2);
  std::vector<RankGroup> groups;
  const auto add = [&](RankGroup group) {
    if (group.ranks > 1) groups.push_back(group);
  };
  add({.ranks = tensor, .stride = 1});
  add({.ranks = copies, .stride = tensor});
  const int64_t shard = p.data.shard_size;
  if (shard > 1 && shard < copies) {
    add({.ranks = shard, .stride = tensor});
    add({.ranks = copies / shard, .stride = tensor * shard});
  }
  // Keys and values go around a ring, or from each to each.
  const bool is_ring = p.context.kind == ContextKind::kRing,
             is_ulysses = p.context.kind == ContextKind::kUlysses;
  add({.ranks = p.context.size,
       .stride = tensor,
       .peers = is_ring      ? std::min<int64_t>(p.context.size - 1, 2)
                : is_ulysses ? p.context.size - 1
                             : 0});
  add({.ranks = stages, .stride = tensor * copies, .peers = neighbours});
  if (s.model.tie_embeddings && stages > 1) add({.ranks = 2, .stride = tensor * copies * (stages - 1)});
  // DeepEP has buffers of its own.
  const int64_t experts = p.expert.size;
  const bool by_nccl = p.expert.dispatcher == ExpertDispatcher::kAllToAll;
  add({.ranks = by_nccl ? experts : 1,
       .stride = p.TensorRanksHaveExperts() ? 1 : tensor,
       .peers = experts - 1});
  if (experts > 1) add({.ranks = copies / p.ExpertDataRanks(), .stride = tensor * p.ExpertDataRanks()});
  return groups;
}

// The rank itself and those of its group that its node has.
int64_t RanksOnNode(const RankGroup& group, int64_t devices_per_node) {
  return std::clamp<int64_t>(devices_per_node / group.stride, 1, group.ranks);
}

Bytes MemoryForPeers(const RankGroup& group, int64_t devices_per_node, const CommunicatorMemorySpec& spec) {
  if (group.peers == 0) return Bytes(0);
  const int64_t on_node = RanksOnNode(group, devices_per_node);
  const bool is_within = on_node == group.ranks;
  const int64_t near = std::min(group.peers, on_node - 1);
  return spec.channel * (near * (is_within ? spec.peer_channels : spec.network_peer_channels)) +
         (is_within ? Bytes(0) : spec.network);
}

}  // namespace

Bytes CommunicatorMemory(const Scenario& scenario, const CommunicatorMemorySpec& spec) {
  const int64_t world = scenario.WorldSize();
  if (world == 1) return Bytes(0);
  Bytes bytes = spec.first;
  for (const RankGroup& group : GroupsOf(scenario)) {
    if (group.ranks < world) bytes += spec.further;
    bytes += MemoryForPeers(group, scenario.cluster.devices_per_node, spec);
  }
  return bytes;
}

}  // namespace windtunnel
