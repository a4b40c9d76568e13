// The composed evaluator agrees with Predict on scenarios that are drawn at random, or refuses them.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "plan/plan.h"
#include "scenarios/load.h"
#include "sim/search/space.h"
#include "tests/sim/composed_step_testing.h"
#include "tests/sim/datasheets.h"

namespace windtunnel {
namespace {

template <typename T>
T Any(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}

ModelSpec AnyModel(ModelSpec model) {
  model.hidden = Any<int64_t>({32, 96, 1024});
  model.seq_len = Any<int64_t>({16, 24, 1024});
  model.heads = 4;
  model.kv_heads = Any<int64_t>({2, 4});
  model.head_dim = Any({model.hidden / model.heads, int64_t{24}});
  model.ffn = model.hidden * Any<int64_t>({2, 4});
  model.activation = Any({ActivationKind::kGelu, ActivationKind::kSwiglu, ActivationKind::kClampedSwiglu});
  model.norm = Any({NormKind::kLayerNorm, NormKind::kRmsNorm});
  model.position = Any({PositionKind::kLearned, PositionKind::kRope});
  if (model.position == PositionKind::kRope) model.rope_dim = Any<int64_t>({0, 0, 6});
  model.bias = Any({true, false});
  model.qkv_bias = Any({true, false});
  model.qk_norm = Any({true, false});
  model.post_norm = Any({true, false, false});
  if (model.post_norm) model.pre_norm = Any({true, false});
  if (model.qk_norm) model.qk_norm_over = Any({QkNormSpan::kHead, QkNormSpan::kAllHeads});
  model.tie_embeddings = Any({true, false});
  if (model.position == PositionKind::kRope && Any({true, false, false}))
    model.mtp = TokenPredictionSpec{.layers = Any<int64_t>({1, 1, 2}), .repeated = Any({true, false})};
  model.attention = Any({AttentionKind::kEager, AttentionKind::kFlash});
  model.dropout = Any({0.0, 0.0, 0.1});
  if (model.attention == AttentionKind::kFlash && model.dropout == 0)
    model.document_tokens = Any<int64_t>({0, 0, 8});
  if (Any({true, false, false}))
    model.sliding_window =
        SlidingWindowSpec{.tokens = Any<int64_t>({4, 20, 256}), .full_every = Any<int64_t>({0, 2, 3, 4})};
  if (Any({true, false, false}))
    model.experts = ExpertsSpec{.count = 4,
                                .top_k = Any({1, 2}),
                                .capacity_factor = Any({0.0, 1.5}),
                                .imbalance = 1.25,
                                .bias = Any({true, false, false}),
                                .shared_ffn = Any<int64_t>({0, 0, 2 * model.hidden}),
                                .latent = Any<int64_t>({0, 0, 32}),
                                .first_dense = Any<int64_t>({0, 0, 0, 1, 3, 4}),
                                .every = Any<int64_t>({1, 1, 1, 2, 3}),
                                .dense_ffn = Any<int64_t>({0, 3 * model.hidden})};
  model.causal = model.sliding_window || model.mtp || Any({true, true, false});
  if (!model.post_norm && !model.mtp) model.residual_from_norm = Any({true, false, false});
  if (!model.post_norm && !model.experts && !model.mtp && !model.residual_from_norm)
    model.parallel_residual = Any({ParallelResidual::kNone, ParallelResidual::kNone,
                                   ParallelResidual::kOneNorm, ParallelResidual::kTwoNorms});
  model.attention_gate = Any({true, false, false});
  if (model.experts && model.experts->shared_ffn > 0) model.experts->shared_gate = Any({true, false});
  if (model.position == PositionKind::kRope && Any({true, false, false})) {
    model.attention_gate = false;
    model.latent_attention = LatentAttentionSpec{
        .q_rank = Any<int64_t>({0, 32}), .kv_rank = 32, .rope_dim = 4, .value_dim = Any<int64_t>({6, 24})};
    model.kv_heads = model.heads;
    model.qkv_bias = model.qk_norm = false;
    model.rope_dim = 0;
    model.parallel_residual = ParallelResidual::kNone;
  }
  return model;
}

PrecisionSpec AnyPrecision() {
  PrecisionSpec precision;
  precision.param = precision.compute = Any({Precision::kBf16, Precision::kFp16, Precision::kFp32});
  if (Any({false, false, true})) {
    precision.param = Precision::kBf16;
    precision.compute = Precision::kFp8;
    precision.fp8_recipe =
        Any({Fp8Recipe::kTensorwise, Fp8Recipe::kDelayed, Fp8Recipe::kBlock, Fp8Recipe::kMxfp8});
  }
  if (precision.param == Precision::kFp32 && Any({true, false}))
    precision.compute = Precision::kBf16;  // autocast
  precision.reduce = Any({Precision::kFp32, precision.param});
  precision.loss_scale = Any({LossScale::kNone, LossScale::kDynamic});
  return precision;
}

// A random set of modules, whether or not the model has them.
std::vector<RecomputeModule> AnyModules() {
  std::vector<RecomputeModule> modules;
  for (const RecomputeModule module :
       {RecomputeModule::kCoreAttention, RecomputeModule::kLayerNorm, RecomputeModule::kMlp,
        Any({RecomputeModule::kMoe, RecomputeModule::kMoeActivation})})
    if (Any({true, false})) modules.push_back(module);
  return modules;
}

// Draws tensor, context and expert ranks, and how attention must be computed over them.
void SplitAnyhow(ModelSpec& model, ParallelSpec& parallel) {
  parallel.tensor = {.size = Any<int64_t>({1, 2}), .sequence = Any({true, false})};
  parallel.tensor.overlap = parallel.tensor.sequence && Any({true, false});
  parallel.context = {Any<int64_t>({1, 1, 2, 4}),
                      Any({ContextKind::kRing, ContextKind::kAllGather, ContextKind::kUlysses})};
  if (parallel.context.size > 1 && parallel.context.kind != ContextKind::kUlysses) {
    model.attention = AttentionKind::kFlash;
    model.document_tokens = 0;
    if (parallel.context.kind == ContextKind::kRing) model.sliding_window.reset();
  }
  if (model.experts) parallel.expert.size = Any<int64_t>({1, 2, 4});
  if (parallel.expert.size > 1) {
    const bool of_tensor = parallel.tensor.size > 1 && parallel.tensor.sequence && Any({true, false});
    parallel.expert.tensor = of_tensor ? 1 : 0;
    if (model.experts->capacity_factor == 0 && (of_tensor || parallel.tensor.size == 1) && Any({true, false}))
      parallel.expert.dispatcher = ExpertDispatcher::kDeepEp;
  }
}

void StageAnyhow(ModelSpec& model, PipelineSpec& pipeline) {
  pipeline.size = Any<int64_t>({1, 2, 3, 4});
  pipeline.virtual_stages = pipeline.size > 1 ? Any<int64_t>({1, 1, 2, 3}) : 1;
  pipeline.schedule = pipeline.virtual_stages == 1 ? Any<std::string>({"1f1b", "gpipe", "none", "zb_h1"})
                      : pipeline.virtual_stages == 2
                          ? Any<std::string>({"interleaved", "looped_bfs", "zb_v", "dualpipe_v"})
                          : Any<std::string>({"interleaved", "looped_bfs"});
  if (pipeline.schedule == "zb_v" || pipeline.schedule == "dualpipe_v") {  // a rank has both ends
    model.tie_embeddings = false;
    model.mtp.reset();
  }
  const int64_t stages = pipeline.size * pipeline.virtual_stages;
  std::vector<int64_t> layers(static_cast<size_t>(stages), Any<int64_t>({1, 2, 3, 5}));
  if (Any({true, false}))
    for (int64_t& of_stage : layers) of_stage = Any<int64_t>({1, 2, 3, 5});
  if (stages > 2 && Any({true, false, false})) layers.front() = 0;
  if (stages > 2 && Any({true, false, false})) layers.back() = 0;
  model.layers = std::accumulate(layers.begin(), layers.end(), int64_t{0});
  if (stages > 1) pipeline.balance = layers;
}

DataParallelSpec AnyData(Precision param) {
  DataParallelSpec data;
  data.size = Any<int64_t>({1, 2, 3, 4});
  data.kind = data.size == 1
                  ? Any({DataParallelKind::kNone, DataParallelKind::kDdp, DataParallelKind::kZero1})
                  : Any({DataParallelKind::kDdp, DataParallelKind::kZero1});
  data.overlap = Any({true, false});
  data.overlap_param_gather = data.kind == DataParallelKind::kZero1 && data.overlap && Any({true, false});
  data.bucket_cap_mb = Any<std::optional<double>>({std::nullopt, 0.05, 1.0, 25.0});
  const bool may_view = param == Precision::kFp32;
  data.gradient_as_bucket_view = may_view && Any({true, false});
  data.find_unused_parameters = Any({true, false, false});
  return data;
}

// Sometimes freezes the model's weights and adds adapters, where they may be.
void AdaptAnyhow(Scenario& s) {
  const std::vector<int64_t>& balance = s.parallel.pipeline.balance;
  const bool may = s.recompute != Recompute::kSelectiveOp && !s.parallel.tensor.overlap && !s.model.mtp &&
                   !s.model.latent_attention && !s.precision.fp8_param_gather &&
                   (s.precision.fp8_recipe == Fp8Recipe::kNone || s.framework == Framework::kMegatronCore) &&
                   (s.parallel.data.kind != DataParallelKind::kFsdp || s.parallel.data.version == 2) &&
                   std::find(balance.begin(), balance.end(), 0) == balance.end();
  if (!may || Any({true, false})) return;
  s.model.lora =
      LoraSpec{.rank = Any<int64_t>({4, 16}), .alpha = Any({0.0, 32.0}), .dropout = Any({0.0, 0.0, 0.1})};
  s.model.lora->targets = Any<std::vector<LoraTarget>>(
      {{}, {LoraTarget::kQkv}, {LoraTarget::kProjection}, {LoraTarget::kQkv, LoraTarget::kProjection}});
  if (!s.model.experts && Any({true, false}))
    s.model.lora->targets =
        Any<std::vector<LoraTarget>>({{LoraTarget::kDown}, {LoraTarget::kUp, LoraTarget::kGateUp}});
  const bool may_quantize =
      !s.model.experts && s.precision.fp8_recipe == Fp8Recipe::kNone && s.parallel.data.reshard_ranks <= 1;
  if (may_quantize)
    s.model.lora->quantize = Any({Quantization::kNone, Quantization::kNf4, Quantization::kNf4Double});
}

// Sometimes keeps moments in 8 bits, where they may be, and otherwise never.
void PackMomentsAnyhow(Scenario& s) {
  const DataParallelSpec& data = s.parallel.data;
  const bool has_kind =
      data.kind == DataParallelKind::kNone || data.kind == DataParallelKind::kDdp ||
      (data.kind == DataParallelKind::kFsdp && data.version == 2 && data.offload == Offload::kNone);
  const bool may = has_kind && s.optimizer.kind != OptimizerKind::kSgd &&
                   (s.framework == Framework::kWindtunnel || IsPytorch(s.framework));
  if (s.optimizer.moments == MomentsType::kInt8) s.optimizer.moments = MomentsType::kFp32;
  if (may && Any({true, false, false})) s.optimizer.moments = MomentsType::kInt8;
}

// Sometimes launches parts of layers as graphs, where they may be.
void GraphAnyhow(Scenario& s) {
  if (s.framework != Framework::kMegatronCore || s.recompute == Recompute::kFull || Any({true, false}))
    return;
  using enum CudaGraphScope;
  std::vector<CudaGraphScope> scope;
  if (Any({true, true, false})) scope.push_back(kAttention);
  const bool has_plain = !s.model.experts || s.model.LayersWithExperts() < s.model.layers;
  if (has_plain && Any({true, false})) scope.push_back(kMlp);
  if (s.model.experts && !s.Recomputes(RecomputeModule::kMoe) && Any({true, true, false})) {
    scope.push_back(s.model.experts->capacity_factor > 0 ? Any({kMoe, kMoeRouter}) : kMoeRouter);
    if (scope.back() == kMoeRouter && Any({true, false})) scope.push_back(kMoePreprocess);
  }
  if (scope.empty()) return;
  s.run.cuda_graphs = true;
  s.run.cuda_graph_scope = scope;
}

// Makes the rows of GEMM operands whole blocks where blocks have scales of their own, as the loader requires.
void FillBlocks(Scenario& s) {
  const Fp8Recipe recipe = s.precision.fp8_recipe;
  if (recipe != Fp8Recipe::kMxfp8 && recipe != Fp8Recipe::kNvfp4) return;
  s.model.hidden = s.model.seq_len = 1024;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 2 * s.model.hidden;
  if (s.model.latent_attention) s.model.latent_attention->rope_dim = 32;
}

// Any scenario that is composed. It varies models, batches, autocast, meshes, frameworks and the time that
// each one's host takes, clipping, tied weights, shards with padding, and one micro-batch or many.
Scenario AnyScenario() {
  Scenario s = Base(false);
  s.model = AnyModel(s.model);
  s.precision = AnyPrecision();
  s.cluster.device = Any({"a100-sxm-80g", "h100-sxm-80g"});
  s.optimizer.kind = Any({OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd});
  s.optimizer.fused = Any({true, false});
  s.optimizer.clip_norm = Any({0.0, 1.0});
  s.optimizer.moments = Any({MomentsType::kFp32, MomentsType::kBf16});
  s.framework = Any({Framework::kWindtunnel, Framework::kMegatron, Framework::kMegatronCore,
                     Framework::kDeepspeed, Framework::kPytorch});
  if (s.framework == Framework::kMegatronCore && s.precision.compute == Precision::kFp8 &&
      Any({true, false, false})) {
    s.precision.compute = Precision::kFp4;
    s.precision.fp8_recipe = Fp8Recipe::kNvfp4;
  }
  s.allocator = Any({AllocatorKind::kWindtunnel, AllocatorKind::kPytorch});
  s.recompute = Any({Recompute::kNone, Recompute::kSelective, Recompute::kSelectiveOp, Recompute::kFull});
  if (s.recompute == Recompute::kSelectiveOp) {
    s.model.attention_gate = false;
    if (s.model.experts) s.model.experts->shared_gate = false;
    s.model.post_norm = false;
    s.model.pre_norm = true;
    s.model.parallel_residual = ParallelResidual::kNone;
  }
  if (s.framework != Framework::kWindtunnel && s.model.attention == AttentionKind::kFlash)
    s.model.flash_kernels =
        Any({FlashChoice::kFramework, FlashChoice::kFlashAttention2, FlashChoice::kCudnn});
  if (s.framework == Framework::kMegatronCore || s.framework == Framework::kPytorch)
    s.cross_entropy = Any({CrossEntropyKind::kFramework, CrossEntropyKind::kFused});
  if (s.recompute == Recompute::kSelective && s.framework != Framework::kMegatron &&
      s.framework != Framework::kDeepspeed)
    s.recompute_modules = AnyModules();
  if (s.model.parallel_residual != ParallelResidual::kNone || !s.model.pre_norm)
    std::erase(s.recompute_modules, RecomputeModule::kLayerNorm);
  s.batch = {.micro = Any<int64_t>({1, 2, 3}), .accumulate = Any<int64_t>({1, 2, 3, 4, 8, 12})};
  ParallelSpec& parallel = s.parallel;
  SplitAnyhow(s.model, parallel);
  if (s.model.latent_attention) parallel.tensor.overlap = false;
  StageAnyhow(s.model, parallel.pipeline);
  parallel.data = AnyData(s.precision.param);
  // All on one node, or one, two or three stages on each.
  const int64_t of_pipeline = parallel.pipeline.size, drawn = Any<int64_t>({of_pipeline, 1, 2, 3});
  const int64_t stages = of_pipeline % drawn == 0 ? drawn : of_pipeline;
  s.cluster.devices_per_node = parallel.tensor.size * parallel.context.size * parallel.data.size * stages;
  s.cluster.nodes = of_pipeline / stages;
  FillBlocks(s);
  const bool may_store_in_fp8 =
      s.framework == Framework::kMegatronCore && parallel.data.kind == DataParallelKind::kZero1 &&
      s.precision.compute == Precision::kFp8 && s.precision.param != Precision::kFp32;
  const bool is_composed = s.precision.fp8_recipe != Fp8Recipe::kMxfp8 || !parallel.data.overlap_param_gather;
  if (may_store_in_fp8 && is_composed) s.precision.fp8_param_gather = Any({true, false});
  if (s.recompute == Recompute::kFull && s.model.HasAlikeLayers() && !s.model.mtp)
    s.recompute_layers = Any<int64_t>({0, 0, 1, 2, 3});
  GraphAnyhow(s);
  AdaptAnyhow(s);
  PackMomentsAnyhow(s);
  const DataParallelKind kind = parallel.data.kind;
  const bool has_whole_matrices = kind == DataParallelKind::kNone || kind == DataParallelKind::kDdp;
  if (has_whole_matrices && s.precision.optimizer == Precision::kFp32 && Any({true, false, false})) {
    s.optimizer.kind = OptimizerKind::kMuon;
    s.optimizer.fused = false;
    if (s.optimizer.moments == MomentsType::kInt8) s.optimizer.moments = MomentsType::kBf16;
    s.optimizer.momentum = 0.95;
    s.optimizer.ns_steps = Any<int64_t>({1, 2, 5});
  }
  return s;
}

// Any scenario that is stretched: both versions of FSDP with any sharding, tensor and context ranks, experts,
// rowwise fp8 and offload.
Scenario AnyShardedScenario() {
  Scenario s = AnyScenario();
  if (s.optimizer.kind == OptimizerKind::kMuon)
    s.optimizer = {.kind = OptimizerKind::kAdamW, .clip_norm = s.optimizer.clip_norm};
  ParallelSpec& parallel = s.parallel;
  parallel.pipeline = {};
  s.model.layers = Any<int64_t>({6, 8, 9, 10, 13, 17, 21});
  s.batch.accumulate = Any<int64_t>({1, 1, 2, 4, 5, 6, 9});
  s.framework = Any({Framework::kWindtunnel, Framework::kPytorch, Framework::kPytorchCompile});
  s.run = {};
  s.cross_entropy = Any({CrossEntropyKind::kFramework, CrossEntropyKind::kFused});
  if (s.precision.compute == Precision::kFp8 && Any({true, false}))
    s.precision.fp8_recipe = Fp8Recipe::kRowwise;
  if (s.precision.reduce != Precision::kFp32) s.precision.reduce = s.precision.param;
  DataParallelSpec data;
  data.kind = DataParallelKind::kFsdp;
  data.size = Any<int64_t>({1, 2, 3, 4, 8});
  data.version = Any<int64_t>({1, 2});
  data.sharding = Any({Sharding::kFullShard, Sharding::kShardGradOp, Sharding::kHybridShard,
                       Sharding::kHybridShardZero2, Sharding::kNoShard});
  if (data.sharding == Sharding::kHybridShard || data.sharding == Sharding::kHybridShardZero2)
    data.shard_size = Any<int64_t>({1, 2, 4});
  data.reshard_after_forward = Any({true, true, false});
  if (data.version == 2 && data.reshard_after_forward) data.reshard_ranks = Any<int64_t>({0, 0, 1, 2, 4});
  data.forward_prefetch = data.version == 1 ? Any<int64_t>({0, 0, 1, 2}) : 0;
  data.prefetch = Any({Prefetch::kNone, Prefetch::kBackwardPre, Prefetch::kBackwardPost});
  data.limit_all_gathers = Any({true, false});
  data.sync = Any({GradientSync::kLastMicroBatch, GradientSync::kEveryMicroBatch});
  data.offload = Any({Offload::kNone, Offload::kNone, Offload::kNone, Offload::kOptimizer, Offload::kParam});
  parallel.data = data;
  s.model.lora.reset();
  AdaptAnyhow(s);
  PackMomentsAnyhow(s);
  s.activation_offload = Any({true, false, false});
  s.activation_offload_layers = s.activation_offload ? Any<int64_t>({0, 0, 0, 0, 4, 9}) : 0;
  s.precision.fp8_param_gather = s.precision.fp8_recipe == Fp8Recipe::kTensorwise && data.version == 2 &&
                                 s.precision.param != Precision::kFp32 && data.offload == Offload::kNone &&
                                 data.reshard_ranks == 0 && Any({true, false});
  const bool is_pytorch = s.framework != Framework::kWindtunnel && data.offload == Offload::kNone;
  if (is_pytorch && s.precision.param == Precision::kBf16)
    s.precision.optimizer = Any({Precision::kFp32, Precision::kBf16});
  if (s.precision.optimizer == Precision::kBf16 && s.optimizer.moments == MomentsType::kFp32)
    s.optimizer.moments = MomentsType::kBf16;
  s.cluster.devices_per_node = Any<int64_t>({1, 2, 4, 8});
  const int64_t ranks = data.size * parallel.tensor.size * parallel.context.size;
  s.cluster.nodes = std::max<int64_t>(ranks / s.cluster.devices_per_node, 1);
  return s;
}

// How many scenarios were drawn, and how many of them were stretched.
int drawn = 0, stretched = 0;

RC_GTEST_PROP(ComposedStep, IsPredictOfAnyShardedScenario, ()) {
  const Scenario scenario = AnyShardedScenario();
  RC_PRE(CompilePlan(scenario).has_value());
  ComposedSteps steps;
  const auto both = Compare(steps, scenario);
  ++drawn;
  stretched += both.has_value();
  if (!both) {
    RC_CLASSIFY(true, both.error().message);
    if (both.error().kind == ErrorKind::kUnsupported) return;
    RC_FAIL(both.error().message + "\n" + ResolvedYaml(scenario));
  }
  RC_CLASSIFY(true, "stretched");
  if (both->composed_time != both->predicted_time || both->composed_memory != both->predicted_memory) {
    RC_FAIL(fmt::format("time {} and {}, memory {} and {}\n{}", both->composed_time.picoseconds(),
                        both->predicted_time.picoseconds(), both->composed_memory.count(),
                        both->predicted_memory.count(), ResolvedYaml(scenario)));
  }
}

// (35 % of 1,500; most of the others are too short to stretch.)
TEST(ComposedStep, StretchesAFairShareOfShardedScenarios) { EXPECT_GE(stretched, drawn / 5); }

RC_GTEST_PROP(ComposedStep, IsPredictOfAnyScenario, ()) {
  const Scenario scenario = AnyScenario();
  RC_PRE(CompilePlan(scenario).has_value());
  ComposedSteps steps;
  const auto both = Compare(steps, scenario);
  const std::string yaml = ResolvedYaml(scenario);
  if (!both && scenario.model.lora && both.error().kind == ErrorKind::kUnsupported) return;
  if (!both) RC_FAIL(both.error().message + "\n" + yaml);
  if (both->composed_time != both->predicted_time || both->composed_memory != both->predicted_memory) {
    RC_FAIL(fmt::format("time {} and {}, memory {} and {}\n{}", both->composed_time.picoseconds(),
                        both->predicted_time.picoseconds(), both->composed_memory.count(),
                        both->predicted_memory.count(), yaml));
  }
}

// Some of the values, at least one.
template <typename T>
std::vector<T> Some(const std::vector<T>& values) {
  std::vector<T> some;
  for (const T& value : values)
    if (*rc::gen::arbitrary<bool>()) some.push_back(value);
  if (some.empty()) some.push_back(values.front());
  return some;
}

// Few values of each range, so that configurations share much.
SearchSpec AnyRanges() {
  SearchSpec ranges;
  ranges.tensor = {Any<int64_t>({1, 2})};
  ranges.sequence = {true};
  ranges.pipeline = Some<int64_t>({2, 4});
  ranges.virtual_stages = {1, 2};
  ranges.schedule = Some<std::string>({"interleaved", "1f1b", "zb_h1", "zb_v", "dualpipe_v"});
  ranges.micro = Some<int64_t>({1, 2});
  ranges.kind = Some<DataParallelKind>({DataParallelKind::kZero1, DataParallelKind::kDdp});
  ranges.overlap = {true, false};
  ranges.recompute = {Any({Recompute::kNone, Recompute::kFull})};
  ranges.recompute_layers = Some<int64_t>({0, 1, 2});
  return ranges;
}

// What configurations of one search share is right for each of them.
RC_GTEST_PROP(ComposedStep, IsPredictOfConfigurationsThatShareParts, ()) {
  Scenario s = AnyScenario();
  s.cluster.device = "h100-sxm-80g";
  s.model.hidden = s.model.seq_len = 1024;
  s.model.head_dim = 256;
  s.model.layers = Any<int64_t>({8, 16});
  s.model.tie_embeddings = false;
  s.model.mtp.reset();
  s.model.sliding_window.reset();
  s.model.experts.reset();
  if (s.model.lora) {
    s.model.lora->targets.clear();
    s.model.parallel_residual = ParallelResidual::kNone;  // a search predicts these one by one
  }
  s.recompute = Recompute::kNone;
  s.recompute_modules.clear();
  s.recompute_layers = 0;
  if (s.run.cuda_graphs) s.run.cuda_graph_scope = {CudaGraphScope::kAttention};
  s.parallel = {};
  s.batch = {.micro = 2, .accumulate = Any<int64_t>({1, 2, 8, 16})};
  s.cluster.nodes = Any<int64_t>({1, 2});
  s.cluster.devices_per_node = 8 / s.cluster.nodes;
  s.search = AnyRanges();
  const auto space = EnumerateSpace(s);
  RC_PRE(space.has_value());
  ComposedSteps steps;
  const bool has_layer_factors = Any({true, false});
  const Profile profile = has_layer_factors ? WithLayerFactors(H100(), s) : H100();
  constexpr size_t kMost = 12;
  for (size_t i = 0; i < std::min(kMost, space->legal.size()); ++i) {
    const Configuration c = *rc::gen::elementOf(space->legal);
    const Scenario scenario = ScenarioOf(s, c);
    const auto both =
        s.precision.fp8_recipe == Fp8Recipe::kNone ? Compare(steps, scenario, profile) : Compare(steps, scenario);
    if (!both) RC_FAIL(both.error().message + "\n" + ResolvedYaml(scenario));
    if (both->composed_time != both->predicted_time || both->composed_memory != both->predicted_memory)
      RC_FAIL(fmt::format("{}: time {} and {}, memory {} and {}\n{}", Describe(c),
                          both->composed_time.picoseconds(), both->predicted_time.picoseconds(),
                          both->composed_memory.count(), both->predicted_memory.count(),
                          ResolvedYaml(scenario)));
  }
}

}  // namespace
}  // namespace windtunnel
