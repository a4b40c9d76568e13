// The axes of a plan's mesh that its streams belong to, by what they are for; -1 where the scenario has no use for one.
#pragma once

#include <map>
#include <utility>

#include "base/result.h"
#include "plan/plan.h"

namespace windtunnel {

struct PlanAxes {
  AxisId world = 0;
  AxisId data =
      -1;  // more than one rank with the same weights (data x context); the world where those are all
  AxisId shard = -1, replicate = -1;  // parts of it, where shards have replicas
  AxisId reshard = -1;  // parts of shard groups that keep a copy among them from forward to backward
  AxisId tensor = -1;                 // more than one tensor-parallel rank
  AxisId context = -1;                // more than one context-parallel rank
  AxisId expert = -1;                 // more than one expert-parallel rank
  AxisId expert_part =
      -1;  // those of it that are of one tensor rank (the same axis, or -1, where that is all, or one)
  AxisId expert_data = -1;            // more than one rank with the same experts
  // What states of experts are sharded over, and what holds the same shards: parts of expert_data, all of it (its axis), or one rank (-1).
  AxisId expert_shard = -1, expert_replicate = -1;
  AxisId pipeline = -1;   // for what is summed over all stages
  AxisId embedding = -1;  // pairs of the first and the last stage's rank, whose weights are tied
  std::map<std::pair<int, int>, AxisId> messages;  // from one pipeline rank to another
};

// Ranks that one copy of the sharded states is divided among.
int64_t ShardRanks(const Scenario& scenario);

// How many of the axes whose collectives may be in flight at once have groups on several nodes: tensor, context, expert and data-parallel
// ones, and what these are divided into.
int AxesAcrossNodes(const Scenario& scenario);

// Adds the axes to the plan. REQUIRES: plan.scenario, plan.mesh and plan.pipeline. InvalidInput for shards that do not divide the
// data axis, or go with the expert axis.
Result<PlanAxes> AddAxes(Plan& plan);

}  // namespace windtunnel
