// The axes of a plan's mesh that its streams communicate over, by purpose; -1: the scenario uses none.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace windtunnel {

struct PlanAxes {
  AxisId world = 0;
  // The ranks with the same weights (data x context), if several; the world's axis if these are all ranks.
  AxisId data = -1;
  AxisId shard = -1, replicate = -1;  // the two dimensions of `data`, where shards have replicas
  // Parts of a shard group that together keep one copy of the parameters from forward to backward.
  AxisId reshard = -1;
  AxisId tensor = -1;   // if there is more than one tensor-parallel rank
  AxisId context = -1;  // if there is more than one context-parallel rank
  AxisId expert = -1;   // if there is more than one expert-parallel rank
  // The ranks of `expert` with one tensor rank: `expert` itself if these are all of it, -1 if only one is.
  AxisId expert_part = -1;
  AxisId expert_data = -1;  // the ranks with the same experts, if there are several
  // The ranks that the states of experts are sharded over, and those that hold the same shard: parts of
  // expert_data, all of it (its axis), or one rank (-1).
  AxisId expert_shard = -1, expert_replicate = -1;
  AxisId pipeline = -1;   // for sums over all stages
  AxisId embedding = -1;  // pairs of a rank of the first and one of the last stage, whose weights are tied
  std::map<std::pair<int, int>, AxisId> messages;  // from one pipeline rank to another
};

// The number of ranks that one copy of the sharded states is divided among.
int64_t ShardRanks(const Scenario& scenario);
// FSDP's parts of a shard group (reshard_after_forward: N); 0 if parameters stay in shards or whole.
int64_t ReshardRanks(const Scenario& scenario);

// Groups of the mesh, without a plan: `ranks` ranks, each `stride` after the one before.
struct RankGroups {
  enum class Purpose : uint8_t {
    kTensor,
    kContext,
    kData,  // the ranks with the same weights, and the two dimensions of it where shards have replicas
    kShard,
    kReplicate,
    kReshard,
    kExpert,
    kExpertPart,
    kExpertData,
    kExpertShard,
    kPipeline,
    kEmbedding
  };
  Purpose purpose = Purpose::kTensor;
  int64_t ranks = 1, stride = 1;

  // A group lies within a block of ranks * stride devices.
  bool LieWithin(int64_t devices_per_node) const { return devices_per_node % (ranks * stride) == 0; }
};
// Those of more than one rank, by the purposes of PlanAxes.
std::vector<RankGroups> RankGroupsOf(const Scenario& scenario);

// The number of axes that have groups on several nodes and whose collectives may be in flight at once: the
// tensor, context, expert and data-parallel axes, and the axes that these are divided into.
int AxesAcrossNodes(const Scenario& scenario);

// Adds the axes to the plan. REQUIRES: plan.scenario, plan.mesh and plan.pipeline. InvalidInput for a shard
// size that does not divide the data axis or does not fit the expert axis.
Result<PlanAxes> AddAxes(Plan& plan);

}  // namespace windtunnel
