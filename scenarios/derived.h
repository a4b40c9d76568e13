// What the loader makes of keys of `parallel` that nobody gives, since other keys say what they mean. A search, which changes those
// others, asks again.
#pragma once

#include <cstdint>
#include <string>

#include "scenarios/scenario.h"

namespace windtunnel {

// `copies` of the weights, data x context.
DataParallelKind DerivedKind(int64_t copies);

// FSDP users accumulate in shards: whole gradients of all units are what sharding is there to avoid. Plain FSDP reduces in every backward;
// in a pipeline of several stages its users turn that off until the last (as torch.distributed.pipelining).
GradientSync DerivedSync(DataParallelKind kind, int64_t pipeline);

bool DerivedReshardAfterForward(Sharding sharding);

// Hybrid sharding is within a node. 0: among all copies.
int64_t DerivedShardSize(DataParallelKind kind, Sharding sharding, int64_t devices_per_node, int64_t copies);

// Two for schedules that fold the pipeline into a V.
int64_t DerivedVirtualStages(const std::string& schedule);

constexpr bool Divides(int64_t divisor, int64_t value) { return divisor > 0 && value % divisor == 0; }

// ZeRO-1 or 2.
constexpr bool IsZero(DataParallelKind kind) {
  return kind == DataParallelKind::kZero1 || kind == DataParallelKind::kZero2;
}
// Whether ranks keep a part of the optimizer's state, or more.
constexpr bool IsSharded(DataParallelKind kind) { return IsZero(kind) || kind == DataParallelKind::kFsdp; }
// Whether parallel.data.overlap is its key.
constexpr bool HasOverlapKey(DataParallelKind kind) { return IsZero(kind) || kind == DataParallelKind::kDdp; }

// Whether FSDP shards within groups of shard_size ranks.
bool IsHybrid(Sharding sharding);

// These give each stage as many layers as the next, and count embedding and head as one each where that does not come out: with two stages
// more than layers those are stages by themselves.
inline bool EndsAreStages(const Scenario& scenario, int64_t stages, int64_t layers) {
  return IsMegatronOrDeepspeed(scenario.framework) && scenario.model.kind == ModelKind::kTransformer &&
         stages == layers + 2 && !scenario.parallel.expert.overlap;
}
// Whether parameters stay gathered between forward and backward, whatever reshard_after_forward says.
bool KeepsParameters(Sharding sharding);
// Whether the schedule folds the pipeline into a V, two stages on each rank.
bool IsVSchedule(const std::string& schedule);

// `parallel` with each of the `derived` keys as its other keys demand.
ParallelSpec WithDerivedKeys(const DerivedKeys& derived, const ClusterSpec& cluster, ParallelSpec parallel);

}  // namespace windtunnel
