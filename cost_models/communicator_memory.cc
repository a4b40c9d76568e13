#include "cost_models/communicator_memory.h"

#include <algorithm>
#include <vector>

#include "plan/axes.h"
#include "scenarios/derived.h"

namespace windtunnel {
namespace {

// Ranks `stride` apart. Each sends messages to `peers` others (with rings and trees only: 0).
struct RankGroup {
  int64_t ranks = 1, stride = 1;
  int64_t peers = 0;
};

using RankGroups = std::vector<RankGroup>;  // groups of one rank do not count

// The groups of the data axis: ranks that hold the same parameters, or shards of them.
void AddDataGroups(const Scenario& s, RankGroups& groups) {
  const int64_t tensor = s.parallel.tensor.size, copies = s.parallel.data.size * s.parallel.context.size;
  groups.push_back({.ranks = copies, .stride = tensor});
  const int64_t shard = ShardRanks(s), part = s.parallel.data.reshard_ranks;
  if (shard > 1 && shard < copies) {
    groups.push_back({.ranks = shard, .stride = tensor});
    groups.push_back({.ranks = copies / shard, .stride = tensor * shard});
  }
  if (part > 1 && part < shard) groups.push_back({.ranks = part, .stride = tensor});
}

// Keys and values go around a ring, or from each rank to each other.
void AddContextGroup(const ParallelSpec& p, RankGroups& groups) {
  const int64_t others = p.context.size - 1;
  int64_t peers = 0;
  if (p.context.kind == ContextKind::kRing) peers = std::min<int64_t>(others, 2);
  if (p.context.kind == ContextKind::kUlysses) peers = others;
  groups.push_back({.ranks = p.context.size, .stride = p.tensor.size, .peers = peers});
}

void AddPipelineGroups(const Scenario& s, RankGroups& groups) {
  const PipelineSpec& pipeline = s.parallel.pipeline;
  const int64_t stride = s.parallel.tensor.size * s.parallel.data.size * s.parallel.context.size;
  groups.push_back(
      {.ranks = pipeline.size, .stride = stride, .peers = std::min<int64_t>(pipeline.size - 1, 2)});
  if (s.model.SharesEmbedding() && pipeline.size > 1 && !IsVSchedule(pipeline.schedule))
    groups.push_back({.ranks = 2, .stride = stride * (pipeline.size - 1)});
}

// As AddExpertAxes of plan/axes.cc.
void AddExpertGroups(const Scenario& s, RankGroups& groups) {
  const ParallelSpec& p = s.parallel;
  if (p.expert.size == 1) return;
  // DeepEP's buffers are its own.
  if (p.expert.dispatcher == ExpertDispatcher::kAllToAll) {
    groups.push_back({.ranks = p.expert.size,
                      .stride = p.TensorRanksHaveExperts() ? 1 : p.tensor.size,
                      .peers = p.expert.size - 1});
  }
  const int64_t parts = p.ExpertDataRanks();
  if (parts == 1) return;  // all copies of a tensor rank have the same experts
  if (p.TensorRanksHaveExperts()) groups.push_back({.ranks = parts, .stride = p.tensor.size});
  const int64_t same = p.data.size * p.context.size / parts, stride = p.tensor.size * parts;
  groups.push_back({.ranks = same, .stride = stride});
  const int64_t sharing = ShardRanks(s) / parts;
  if (sharing > 1 && sharing < same) groups.push_back({.ranks = sharing, .stride = stride});
}

RankGroups GroupsOf(const Scenario& s) {
  RankGroups groups;
  groups.push_back({.ranks = s.parallel.tensor.size, .stride = 1});
  AddDataGroups(s, groups);
  AddContextGroup(s.parallel, groups);
  AddPipelineGroups(s, groups);
  AddExpertGroups(s, groups);
  return groups;
}

// For messages and all-to-alls. For a group with unequal parts on its nodes, assumes the most that a node can
// have.
Bytes MemoryForPeers(const RankGroup& group, int64_t devices_per_node, const CommunicatorMemorySpec& spec) {
  if (group.peers == 0) return Bytes(0);
  const bool is_within = devices_per_node % (group.ranks * group.stride) == 0;
  const int64_t on_node = std::clamp<int64_t>(devices_per_node / group.stride, 1, group.ranks);
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
    if (group.ranks == 1) continue;
    if (group.ranks < world) bytes += spec.further;
    bytes += MemoryForPeers(group, scenario.cluster.devices_per_node, spec);
  }
  return bytes;
}

}  // namespace windtunnel
