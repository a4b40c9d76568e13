#include "scenarios/derived.h"

#include <algorithm>

#include "scenarios/known_schedules.h"

namespace windtunnel {

DataParallelKind DerivedKind(int64_t copies) {
  return copies == 1 ? DataParallelKind::kNone : DataParallelKind::kDdp;
}

GradientSync DerivedSync(DataParallelKind kind, int64_t pipeline) {
  const bool every = kind == DataParallelKind::kZero3 || (kind == DataParallelKind::kFsdp && pipeline == 1);
  return every ? GradientSync::kEveryMicroBatch : GradientSync::kLastMicroBatch;
}

Precision DerivedReduce(const Scenario& scenario) {
  const DataParallelKind kind = scenario.parallel.data.kind;
  const bool is_zero3 = kind == DataParallelKind::kZero3 && scenario.framework != Framework::kWindtunnel;
  const bool is_ddp = kind == DataParallelKind::kDdp &&
                      (IsPytorch(scenario.framework) || scenario.framework == Framework::kDeepspeed);
  const bool is_of_params = is_zero3 || is_ddp || IsDeepspeedsZero(scenario);
  return is_of_params ? scenario.precision.param : Precision::kFp32;
}

bool DerivedReshardAfterForward(Sharding sharding) { return !KeepsParameters(sharding); }

int64_t DerivedShardSize(DataParallelKind kind, Sharding sharding, int64_t devices_per_node, int64_t tensor,
                         int64_t copies) {
  if (kind != DataParallelKind::kFsdp || !IsHybrid(sharding)) return 0;
  // Tensor ranks are neighbours, so the ranks of a shard group are that far apart.
  return std::clamp<int64_t>(devices_per_node / tensor, 1, copies);
}

int64_t DerivedVirtualStages(const std::string& schedule) { return IsVSchedule(schedule) ? 2 : 1; }

bool IsHybrid(Sharding sharding) {
  return sharding == Sharding::kHybridShard || sharding == Sharding::kHybridShardZero2;
}

bool RecomputesGraphs(const Scenario& scenario) {
  if (!HasGraphsOfLayers(scenario)) return false;
  const std::vector<CudaGraphScope>& scope = scenario.run.cuda_graph_scope;
  const bool has_router = std::find(scope.begin(), scope.end(), CudaGraphScope::kMoeRouter) != scope.end();
  return scenario.recompute == Recompute::kFull || (has_router && scenario.Recomputes(RecomputeModule::kMoe));
}

bool KeepsParameters(Sharding sharding) {
  return sharding == Sharding::kShardGradOp || sharding == Sharding::kHybridShardZero2;
}

ParallelSpec WithDerivedKeys(const DerivedKeys& derived, const ClusterSpec& cluster, ParallelSpec parallel) {
  DataParallelSpec& data = parallel.data;
  PipelineSpec& pipeline = parallel.pipeline;
  const int64_t copies = data.size * parallel.context.size;
  const DataParallelKind kind = data.kind;
  if (derived.kind) data.kind = DerivedKind(copies);
  if (derived.sync) data.sync = DerivedSync(kind, pipeline.size);
  if (derived.reshard_after_forward) data.reshard_after_forward = DerivedReshardAfterForward(data.sharding);
  if (derived.shard_size)
    data.shard_size =
        DerivedShardSize(kind, data.sharding, cluster.devices_per_node, parallel.tensor.size, copies);
  if (derived.virtual_stages) pipeline.virtual_stages = DerivedVirtualStages(pipeline.schedule);
  return parallel;
}

std::vector<DataParallelKind> KindsOf(const Scenario& scenario) {
  std::vector<DataParallelKind> kinds = {scenario.parallel.data.kind};
  if (scenario.search) kinds.insert(kinds.end(), scenario.search->kind.begin(), scenario.search->kind.end());
  return kinds;
}

}  // namespace windtunnel
