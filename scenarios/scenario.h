// A scenario: what is trained, how it is split over devices, and on which machine. The types mirror the file
// format of docs/contract.md one to one. A Scenario that the loader (scenarios/load.h) returned is complete
// (presets expanded, defaults filled in) and valid in itself.
//
//   WT_ASSIGN_OR_RETURN(Scenario scenario, LoadScenario("scenarios/ddp_gpt_2rank.yaml", {}));
//   int ranks = scenario.WorldSize();
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "scenarios/model_spec.h"
#include "scenarios/operator_kinds.h"
#include "scenarios/optimizer_spec.h"

namespace windtunnel {

inline constexpr double kMostTokens = 1e15;  // of a step, so that token counts fit 64 bits

// Sequences (samples, for an MLP) per micro-batch, and micro-batches per step, of one data-parallel replica.
struct BatchSpec {
  int64_t micro = 1;
  int64_t accumulate = 1;
  bool operator==(const BatchSpec&) const = default;
};

enum class Precision { kFp32, kTf32, kBf16, kFp16, kFp8, kFp4 };
enum class LossScale { kNone, kDynamic };

struct PrecisionSpec {
  Precision param = Precision::kFp32;
  Precision compute = Precision::kFp32;
  Precision reduce = Precision::kFp32;
  Precision buffer = Precision::kFp32;
  Precision optimizer = Precision::kFp32;
  Fp8Recipe fp8_recipe = Fp8Recipe::kNone;
  // Weights of fp8 products are stored in fp8 (beside fp32 masters or shards), and gathered so.
  bool fp8_param_gather = false;
  LossScale loss_scale = LossScale::kNone;
  double static_loss_scale = 0;  // replaces loss_scale; 0: none
  double init_scale = 65536;     // of dynamic scaling, as torch.amp.GradScaler
  int64_t growth_interval = 2000;

  bool scales_loss() const { return static_loss_scale > 0 || loss_scale == LossScale::kDynamic; }
  bool operator==(const PrecisionSpec&) const = default;
};

// kStep: by `gamma` after every step_size steps (torch.optim.lr_scheduler.StepLR).
enum class LearningRateDecay { kNone, kLinear, kCosine, kSqrt, kStep };
// How the learning rate changes from step to step (runtime/learning_rate.h).
struct LearningRateScheduler {
  int64_t warmup_steps = 0;
  LearningRateDecay decay = LearningRateDecay::kNone;
  int64_t total_steps = 0;  // of the whole schedule; 0: those of the run, with its warm-up
  int64_t decay_steps = 0;  // the last steps of the schedule; 0: all after the warm-up
  double min_lr_factor = 0;
  int64_t step_size = 1;
  double gamma = 0.1;
  bool changes() const { return warmup_steps > 0 || decay != LearningRateDecay::kNone; }
  bool operator==(const LearningRateScheduler&) const = default;
};

enum class Recompute { kNone, kSelective, kSelectiveOp, kFull };
// Parts of a block that `selective` recomputes in backward, by Megatron's names (--recompute-modules).
enum class RecomputeModule {
  kCoreAttention,
  kLayerNorm,      // both norms of a block
  kLatentUp,       // latent attention's up-projections with their norms, and the rotation
  kMlp,            // in layers without experts
  kMoe,            // in layers with experts: router, exchange, experts and the shared expert
  kMoeActivation,  // the experts' activation, between their GEMMs
  kSharedExperts,
};

// How a framework other than windtunnel computes the loss from logits. kFramework: as its profile says.
// kFused: one kernel forward and one backward, over the logits in their own type; the gradient replaces the
// logits (megatron_core) or gets a tensor of the same type (PyTorch).
enum class CrossEntropyKind { kFramework, kFused };

enum class DataParallelKind { kNone, kDp, kDdp, kZero1, kZero2, kZero3, kFsdp };
enum class Sharding { kFullShard, kShardGradOp, kHybridShard, kHybridShardZero2, kNoShard };
enum class GradientSync { kLastMicroBatch, kEveryMicroBatch };
enum class Prefetch { kNone, kBackwardPre, kBackwardPost };
enum class Offload { kNone, kOptimizer, kParam };

// What an FSDP unit is: every block, the whole model, modules until a size is reached, or modules by name.
struct WrapPolicy {
  enum class Kind { kBlock, kRoot, kSize, kModules } kind = Kind::kBlock;
  int64_t size_bytes = 0;
  std::vector<std::string> modules;
  bool operator==(const WrapPolicy&) const = default;
};

inline constexpr double kPytorchBucketMib = 25;

// Of kind zero3, in elements, with DeepSpeed's names and defaults (stage3_prefetch_bucket_size, …).
struct Zero3Spec {
  // Parameters that are gathered ahead at every module that begins: until they are at least this many.
  int64_t prefetch_bucket_size = 50'000'000;
  // Parameters of up to this many elements are whole on every rank.
  int64_t param_persistence_threshold = 100'000;
  // Nothing is gathered ahead while this many elements are whole, or on their way.
  int64_t max_live_parameters = 1'000'000'000;
  // A module's parameters stay whole if fewer than this many elements of others are used before it is again.
  int64_t max_reuse_distance = 1'000'000'000;
  bool operator==(const Zero3Spec&) const = default;
};

// PowerSGD, PyTorch's powerSGD_hook of DDP (plan/powersgd.h).
struct PowerSgdSpec {
  int64_t rank = 1;                 // columns of the two matrices that stand for a gradient
  int64_t start_step = 2;           // steps before it reduce whole gradients
  double min_compression_rate = 2;  // gradients that would be shortened less are reduced whole
  bool error_feedback = true;       // what one step loses is added to the next one's gradients
  bool operator==(const PowerSgdSpec&) const = default;
};

struct DataParallelSpec {
  DataParallelKind kind = DataParallelKind::kNone;
  int64_t size = 1;
  Sharding sharding = Sharding::kFullShard;
  int version = 2;
  bool reshard_after_forward = true;
  // `reshard_after_forward: N`: after forward, each of N ranks keeps a part, and backward gathers from those.
  // 0: sharded as between steps.
  int64_t reshard_ranks = 0;
  int64_t forward_prefetch = 0;
  // Ranks in one shard group. 0: all ranks; for hybrid sharding the ranks of a node (DerivedShardSize).
  int64_t shard_size = 0;
  // MiB. None: the framework's own (plan/gradient_buckets.h), which is 25 except in Megatron-Core and
  // DeepSpeed.
  std::optional<double> bucket_cap_mb = {};
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  GradientSync sync = GradientSync::kLastMicroBatch;
  bool overlap = true;
  bool overlap_param_gather = false;
  WrapPolicy wrap = {};
  Prefetch prefetch = Prefetch::kBackwardPre;
  bool limit_all_gathers = true;
  Zero3Spec zero3 = {};
  std::optional<PowerSgdSpec> powersgd = {};
  Offload offload = Offload::kNone;
  bool operator==(const DataParallelSpec&) const = default;
};

// Where a pipeline has the modules of multi-token prediction (ModelSpec::mtp): in the last stage, or behind
// the layers of the stage before it, and then the last stage has the heads and their losses alone.
enum class MtpStage { kLast, kBeforeLast };
struct PipelineSpec {
  int64_t size = 1;
  // none | gpipe | 1f1b | interleaved | looped_bfs | zb_h1 | zb_v | dualpipe_v | a CSV file
  std::string schedule = "1f1b";
  int64_t virtual_stages = 1;
  // Layers of each stage. Empty: balanced by cost, or as the framework counts.
  std::vector<int64_t> balance = {};
  MtpStage mtp = MtpStage::kLast;
  bool operator==(const PipelineSpec&) const = default;
};

struct TensorParallelSpec {
  int64_t size = 1;
  bool sequence = false;
  bool overlap = false;
  bool operator==(const TensorParallelSpec&) const = default;
};

enum class ContextKind { kRing, kAllGather, kUlysses };
struct ContextParallelSpec {
  int64_t size = 1;
  ContextKind kind = ContextKind::kRing;
  bool operator==(const ContextParallelSpec&) const = default;
};

enum class ExpertDispatcher { kAllToAll, kDeepEp };
struct ExpertParallelSpec {
  int64_t size = 1;
  int64_t tensor = 0;  // ranks that share each expert: 1, or those of the tensor axis (also for 0)
  ExpertDispatcher dispatcher = ExpertDispatcher::kAllToAll;
  bool overlap = false;  // one micro-batch's tokens are exchanged during another's computation
  // Backward computes input gradients first, and weight gradients beside the exchange that follows.
  bool delay_wgrad = false;
  bool operator==(const ExpertParallelSpec&) const = default;
};

struct ParallelSpec {
  DataParallelSpec data;
  PipelineSpec pipeline;
  TensorParallelSpec tensor;
  ContextParallelSpec context;
  ExpertParallelSpec expert;

  // Tensor ranks have whole experts of their own instead of parts of all (Megatron's
  // expert_tensor_parallel_size 1).
  bool TensorRanksHaveExperts() const { return expert.tensor == 1 && tensor.size > 1; }
  // Ranks of the data axis (data x context) that have different experts.
  int64_t ExpertDataRanks() const {
    return TensorRanksHaveExperts() ? std::max<int64_t>(expert.size / tensor.size, 1) : expert.size;
  }

  bool operator==(const ParallelSpec&) const = default;
};

// A link, by a preset's name or by its parts. Parts that are not given are 0 or empty.
struct LinkSpec {
  // nvlink3 | … | loopback | infiniband | roce | ethernet | omnipath | efa; empty: given by its parts
  std::string kind;
  double gbytes_per_s = 0;
  double gbits_per_nic = 0;
  std::optional<double> latency_us;
  bool operator==(const LinkSpec&) const = default;
};

// What collectives use wherever a group supports it. Elsewhere, and with kAuto, NCCL's own choice.
enum class CollectiveAlgorithm { kAuto, kRing, kTree, kNvls, kPat, kHierarchical };
enum class CollectiveProtocol { kAuto, kLl, kLl128, kSimple };

struct NetworkSpec {
  std::string preset;
  LinkSpec intra_node;
  LinkSpec inter_node;
  int64_t nics_per_node = 1;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kAuto;
  CollectiveProtocol protocol = CollectiveProtocol::kAuto;
  bool operator==(const NetworkSpec&) const = default;
};

struct TopologyNode {
  std::string name, kind;
  bool operator==(const TopologyNode&) const = default;
};
struct TopologyLink {
  std::string from, to;
  double gbytes_per_s = 0;
  double latency_us = 0;
  bool operator==(const TopologyLink&) const = default;
};
// Empty, a preset's name, or nodes (devices, nics and switches) and links spelled out.
struct TopologySpec {
  std::string preset;
  // For presets: the bandwidth of a leaf switch's links to nodes over that of its links to the spine.
  double oversubscription = 1;
  int64_t nodes_per_leaf = 0;  // presets: nodes that share leaf switches; 0: the preset's own number
  std::vector<TopologyNode> nodes;
  std::vector<TopologyLink> links;
  bool is_given() const { return !preset.empty() || !nodes.empty() || !links.empty(); }
  bool operator==(const TopologySpec&) const = default;
};

struct StragglerSpec {
  int64_t rank = 0;
  double slowdown = 1.0;
  bool operator==(const StragglerSpec&) const = default;
};
struct SlowLinkSpec {
  std::string from, to;
  double factor = 1.0;
  bool operator==(const SlowLinkSpec&) const = default;
};

struct ClusterSpec {
  std::string device = "cpu";  // cpu | cuda | a hardware profile's name
  int64_t nodes = 1;
  int64_t devices_per_node = 1;
  NetworkSpec network = {};
  TopologySpec topology = {};
  std::optional<StragglerSpec> straggler = std::nullopt;
  std::optional<SlowLinkSpec> slow_link = std::nullopt;
  double jitter = 0.0;
  bool operator==(const ClusterSpec&) const = default;
};

enum class Framework { kWindtunnel, kPytorch, kPytorchCompile, kMegatron, kMegatronCore, kDeepspeed };
constexpr bool IsMegatronOrDeepspeed(Framework framework) {
  return framework == Framework::kMegatron || framework == Framework::kMegatronCore ||
         framework == Framework::kDeepspeed;
}
constexpr bool IsPytorch(Framework framework) {
  return framework == Framework::kPytorch || framework == Framework::kPytorchCompile;
}
// Whether context ranks may share a state space model.
constexpr bool SplitsStates(Framework framework) {
  return framework == Framework::kWindtunnel || framework == Framework::kMegatronCore;
}
// Megatron-LM of 2021 and DeepSpeed's fork of it have none.
constexpr bool HasFusedLosses(Framework framework) {
  return framework != Framework::kMegatron && framework != Framework::kDeepspeed;
}
enum class AllocatorKind { kWindtunnel, kPytorch, kPytorchExpandable };
enum class Backend { kGloo, kMpi, kNccl };

// What CUDA graphs are limited to, by Megatron-Core's names (--cuda-graph-scope): parts of each layer, or all
// passes of a step in one graph.
enum class CudaGraphScope { kAttention, kMamba, kMlp, kMoe, kMoeRouter, kMoePreprocess, kFullIteration };

struct RunSpec {
  Backend backend = Backend::kGloo;
  int64_t warmup = 5;
  int64_t steps = 20;
  uint64_t seed = 0;
  bool pin = true;
  bool cuda_graphs = false;
  std::vector<CudaGraphScope> cuda_graph_scope;  // empty: everything that can be in graphs
  bool deterministic = false;
  bool operator==(const RunSpec&) const = default;
};

// Ranges of `windtunnel search`; an empty list keeps the scenario's own value.
struct SearchSpec {
  std::vector<int64_t> data, tensor, pipeline, context, expert, expert_tensor, micro, accumulate,
      virtual_stages, shard_size;
  std::vector<DataParallelKind> kind;
  std::vector<Sharding> sharding;
  std::vector<std::string> schedule;
  std::vector<Recompute> recompute;
  std::vector<int64_t> recompute_layers;
  std::vector<int64_t> devices;  // data x pipeline x tensor x context
  std::vector<ExpertDispatcher> dispatcher;
  std::vector<ContextKind> context_kind;
  std::vector<Offload> offload;
  std::vector<bool> overlap, sequence, tensor_overlap, expert_overlap, activation_offload, uneven;
  bool operator==(const SearchSpec&) const = default;
};

// Targets of a single run, as fractions.
struct ToleranceSpec {
  double step_time = 0.20;
  double peak_memory = 0.0;
  bool operator==(const ToleranceSpec&) const = default;
};

// The keys of `parallel` that the file does not give and that the loader derived from others
// (scenarios/derived.h). They are not part of what a scenario says, so all compare equal.
struct DerivedKeys {
  bool kind = false, sync = false, reshard_after_forward = false, shard_size = false, virtual_stages = false,
       reduce = false;
  bool operator==(const DerivedKeys&) const { return true; }
};

// A file that the loader read but that the scenario no longer names. It is not part of what a scenario says.
struct ReadFileName {
  std::string path;
  bool operator==(const ReadFileName&) const { return true; }
};

struct Scenario {
  // These are defined in scenario.cc, so that the files that use a Scenario need not each instantiate them.
  Scenario();
  Scenario(const Scenario&);
  Scenario(Scenario&&) noexcept;
  Scenario& operator=(const Scenario&);
  Scenario& operator=(Scenario&&) noexcept;
  ~Scenario();
  bool operator==(const Scenario&) const;

  // Whether `recompute` is kSelective and the module is among those that are recomputed.
  bool Recomputes(RecomputeModule module) const;
  // Whether the whole layer runs again in backward. `first`: the first layer of its stage. An encoder and its
  // decoder are counted apart, each from its own first layer.
  bool RecomputesLayer(int64_t layer, int64_t first) const;
  // With kFull: whether some layers may keep their activations.
  bool RecomputesSomeLayers() const { return recompute_layers > 0 || recompute_every > 1; }
  // The share of the model's layers that run again: 1 with kFull alone. (Stages count as equally long.)
  double RecomputedShare() const;

  std::string name;
  std::string description;
  ModelSpec model;
  BatchSpec batch;
  PrecisionSpec precision;
  OptimizerSpec optimizer;
  LearningRateScheduler lr_scheduler;
  Recompute recompute = Recompute::kNone;
  std::vector<RecomputeModule> recompute_modules;  // with kSelective; empty: the attention core
  // With kFull: of each stage only the first so many layers (0: all), and of the model only every N-th.
  int64_t recompute_layers = 0, recompute_every = 1;
  // What layers keep for backward is in the host's memory meanwhile: of all of them, or of each stage's first
  // so many.
  bool activation_offload = false;
  int64_t activation_offload_layers = 0;  // 0: all
  CrossEntropyKind cross_entropy = CrossEntropyKind::kFramework;
  // The head and the loss work on so many equal parts of a micro-batch's tokens, one after another.
  int64_t cross_entropy_chunks = 1;
  ParallelSpec parallel;
  ClusterSpec cluster;
  // With framework_file: the framework that the profile changes.
  Framework framework = Framework::kWindtunnel;
  std::string framework_file;  // absolute; empty: the built-in profile of `framework`
  AllocatorKind allocator = AllocatorKind::kWindtunnel;
  std::string data = "synthetic";  // or the absolute path of a text file
  RunSpec run;
  std::optional<SearchSpec> search;
  ToleranceSpec tolerance;

  std::string source_file;    // where it was loaded from; empty for scenarios made by code
  ReadFileName model_config;  // the file that model.config named; empty: none
  DerivedKeys derived;        // none are set in a scenario made by code

  // Ranks: data x pipeline x tensor x context (expert divides data x context).
  int64_t WorldSize() const {
    return parallel.data.size * parallel.pipeline.size * parallel.tensor.size * parallel.context.size;
  }
};

}  // namespace windtunnel
