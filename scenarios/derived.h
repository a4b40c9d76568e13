// The values of keys of `parallel` that nobody gives and that follow from other keys. The loader sets them; a
// search, which changes those other keys, derives them again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace windtunnel {

// `copies`: copies of the weights, data x context.
DataParallelKind DerivedKind(int64_t copies);

// FSDP users accumulate gradients in shards: sharding is there to avoid whole gradients of all units. So
// plain FSDP reduces in every backward, and ZeRO-3 never does otherwise. In a pipeline of several stages its
// users turn that off until the last backward (as torch.distributed.pipelining does).
GradientSync DerivedSync(DataParallelKind kind, int64_t pipeline);

// The type in which gradients are reduced: fp32; that of the parameters in DeepSpeed's engine
// (communication_data_type) and in PyTorch's DDP, whose buckets have the gradients' type.
Precision DerivedReduce(const Scenario& scenario);

bool DerivedReshardAfterForward(Sharding sharding);

// Hybrid sharding is within a node, whose devices tensor ranks divide. 0: one group of all copies.
int64_t DerivedShardSize(DataParallelKind kind, Sharding sharding, int64_t devices_per_node, int64_t tensor,
                         int64_t copies);

// 2 for schedules that fold the pipeline into a V.
int64_t DerivedVirtualStages(const std::string& schedule);

constexpr bool Divides(int64_t divisor, int64_t value) { return divisor > 0 && value % divisor == 0; }

// ZeRO-1 or ZeRO-2.
constexpr bool IsZero(DataParallelKind kind) {
  return kind == DataParallelKind::kZero1 || kind == DataParallelKind::kZero2;
}
// Whether ZeRO-1 and 2 are DeepSpeed's: in its own framework, and with PyTorch's kernels (Hugging Face's
// models).
inline bool IsDeepspeedsZero(const Scenario& scenario) {
  return IsZero(scenario.parallel.data.kind) &&
         (IsPytorch(scenario.framework) || scenario.framework == Framework::kDeepspeed);
}
// Whether each rank keeps only a part of the parameters, too.
constexpr bool ShardsParameters(DataParallelKind kind) {
  return kind == DataParallelKind::kZero3 || kind == DataParallelKind::kFsdp;
}
// Whether each rank keeps only a part of the optimizer state (or of more than that).
constexpr bool IsSharded(DataParallelKind kind) { return IsZero(kind) || ShardsParameters(kind); }
// Whether the key parallel.data.overlap applies to this kind.
constexpr bool HasOverlapKey(DataParallelKind kind) {
  return IsZero(kind) || kind == DataParallelKind::kZero3 || kind == DataParallelKind::kDdp;
}

// The most data-parallel ranks that share an update, since the program of each is simulated.
inline constexpr int64_t kMostUpdateRanks = 256;
// Whether ranks share the optimizer's update, parameter by parameter (plan/zero_redundancy.h).
inline bool SharesUpdates(const Scenario& scenario) {
  const DataParallelSpec& data = scenario.parallel.data;
  return scenario.optimizer.zero_redundancy && data.kind == DataParallelKind::kDdp && data.size > 1;
}

// Whether the framework has Megatron's flat buffers of gradients and their buckets also with a single replica
// (kinds none and ddp). Megatron of 2021 has them by default, too; but if they are of 16 bits, it first
// converts them to separate fp32 gradients, parameter by parameter.
inline bool HasMegatronsBuffers(const Scenario& scenario) {
  if (scenario.framework == Framework::kMegatronCore) return true;
  return scenario.framework == Framework::kMegatron && scenario.precision.reduce == Precision::kFp32;
}

// Whether FSDP shards within groups of shard_size ranks.
bool IsHybrid(Sharding sharding);

// Whether a multi-token prediction module is used at several depths.
inline bool RepeatsModule(const ModelSpec& model) {
  return model.mtp && model.mtp->repeated && model.mtp->layers > 1;
}

// Whether the embedding and the head are stages by themselves. These frameworks give each stage equally many
// layers; where that does not come out, they count the embedding and the head as one layer each. With two
// stages more than layers both are then stages of their own.
inline bool EndsAreStages(const Scenario& scenario, int64_t stages, int64_t layers) {
  return IsMegatronOrDeepspeed(scenario.framework) && scenario.model.kind == ModelKind::kTransformer &&
         stages == layers + 2 && !scenario.parallel.expert.overlap;
}
// Whether CUDA graphs are Megatron-Core's of single layers, each of one pass of a micro-batch.
inline bool HasGraphsOfLayers(const Scenario& scenario) {
  const std::vector<CudaGraphScope>& scope = scenario.run.cuda_graph_scope;
  return scenario.run.cuda_graphs && scenario.framework == Framework::kMegatronCore &&
         std::find(scope.begin(), scope.end(), CudaGraphScope::kFullIteration) == scope.end();
}
// Whether the scenario recomputes something of which such a graph is a part: whole layers, or all of the experts
// with the router in a graph.
bool RecomputesGraphs(const Scenario& scenario);
// Whether the modules of multi-token prediction are in the stage before the last one, which has no layers, if
// the model is divided into `stages`.
inline bool PredictsBeforeLastStage(const Scenario& scenario, int64_t stages) {
  return scenario.model.mtp && stages > 1 && scenario.parallel.pipeline.mtp == MtpStage::kBeforeLast;
}
inline bool PredictsBeforeLastStage(const Scenario& scenario) {
  return PredictsBeforeLastStage(scenario, scenario.parallel.pipeline.size);
}
// Whether parameters stay gathered between forward and backward, regardless of reshard_after_forward.
bool KeepsParameters(Sharding sharding);

// Returns `parallel` with each of the `derived` keys set to what its other keys imply.
ParallelSpec WithDerivedKeys(const DerivedKeys& derived, const ClusterSpec& cluster, ParallelSpec parallel);

// The kind of data parallelism, and those that a search goes through.
std::vector<DataParallelKind> KindsOf(const Scenario& scenario);

}  // namespace windtunnel
