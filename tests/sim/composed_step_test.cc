// The composed evaluator agrees with Predict, to the picosecond and the byte.
#include "sim/composed/composed_step.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "scenarios/words.h"
#include "tests/sim/composed_step_testing.h"
#include "tests/sim/datasheets.h"

namespace windtunnel {
namespace {

TEST(ComposedStep, IsPredictWithoutParallelism) {
  for (bool wide : {false, true}) {
    Scenario s = Base(wide);
    s.search.emplace();
    s.search->devices = {1};
    s.search->micro = {1, 2};
    s.search->recompute = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
    ExpectSameInSpace(s);
  }
}

TEST(ComposedStep, IsPredictWithReplicas) {
  for (bool wide : {false, true}) {
    Scenario s = Base(wide);
    s.search.emplace();
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    s.search->overlap = {true, false};
    s.search->micro = {1, 8};
    s.search->recompute = {Recompute::kNone, Recompute::kFull};
    ExpectSameInSpace(s);
  }
}

TEST(ComposedStep, IsPredictWithTensorParallelism) {
  for (bool wide : {false, true}) {
    Scenario s = Base(wide);
    s.search.emplace();
    s.search->tensor = {2, 4};
    s.search->sequence = {true, false};
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    s.search->recompute = {Recompute::kNone, Recompute::kFull};
    ExpectSameInSpace(s);
  }
}

TEST(ComposedStep, IsPredictWithLatentAttention) {
  for (bool wide : {false, true}) {
    Scenario s = Base(wide);
    s.model.heads = s.model.kv_heads = 8;
    s.model.head_dim = 96;
    s.model.position = PositionKind::kRope;
    s.model.qkv_bias = s.model.qk_norm = false;
    s.model.latent_attention = LatentAttentionSpec{.q_rank = 96, .kv_rank = 128, .rope_dim = 32};
    s.search.emplace();
    s.search->tensor = {1, 2};
    s.search->sequence = {true, false};
    s.search->pipeline = {1, 2};
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    s.search->recompute = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
    ExpectSameInSpace(s);
  }
}

TEST(ComposedStep, IsPredictWhereTokensGoAroundInParts) {
  for (const Framework framework : {Framework::kWindtunnel, Framework::kPytorch, Framework::kMegatronCore}) {
    for (bool wide : {false, true}) {
      Scenario s = Base(wide);
      s.model.heads = s.model.kv_heads = 8;
      s.model.head_dim = s.model.hidden / s.model.heads;
      s.framework = framework;
      s.parallel.tensor.overlap = true;
      s.search.emplace();
      s.search->tensor = {2, 8};
      s.search->sequence = {true};
      s.search->pipeline = {1, 2};
      s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
      s.search->recompute = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
      ExpectSameInSpace(s);
    }
  }
}

// PyTorch keeps the output of a single up projection (GELU), and gathers its tokens again only for the
// gradient of its weight.
TEST(ComposedStep, IsPredictWhereTokensComeForAGradient) {
  for (const ActivationKind activation : {ActivationKind::kGelu, ActivationKind::kSwiglu}) {
    Scenario s = Base(true);
    s.model.activation = activation;
    s.framework = Framework::kPytorch;
    s.parallel.tensor = {.size = 2, .sequence = true, .overlap = true};
    s.recompute = Recompute::kSelectiveOp;
    s.search.emplace();
    s.search->pipeline = {1, 2};
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    ExpectSameInSpace(s);
  }
}

TEST(ComposedStep, IsPredictWithContextParallelism) {
  for (const ContextKind kind : {ContextKind::kRing, ContextKind::kAllGather, ContextKind::kUlysses}) {
    for (bool wide : {false, true}) {
      Scenario s = Base(wide);
      s.model.heads = s.model.kv_heads = 8;
      s.model.head_dim = s.model.hidden / s.model.heads;
      s.model.attention = AttentionKind::kFlash;
      s.parallel.context.kind = kind;
      s.search.emplace();
      s.search->tensor = {1, 2};
      s.search->context = {2, 4};
      s.search->pipeline = {1, 2};
      s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
      s.search->recompute = {Recompute::kNone, Recompute::kFull};
      ExpectSameInSpace(s);
    }
  }
}

// As in Megatron, experts are spread over data and context ranks, and the ranks that have the same experts
// reduce the buckets of their gradients together.
TEST(ComposedStep, IsPredictWithExperts) {
  for (const Framework framework : {Framework::kWindtunnel, Framework::kMegatronCore}) {
    for (bool wide : {false, true}) {
      Scenario s = Base(wide);
      s.model.experts =
          ExpertsSpec{.count = 8, .top_k = 2, .capacity_factor = wide ? 0.0 : 1.25, .imbalance = 1.2};
      s.framework = framework;
      s.optimizer.clip_norm = 1;
      s.search.emplace();
      s.search->tensor = {1, 2};
      s.search->sequence = {true};
      s.search->pipeline = {1, 2};
      s.search->virtual_stages = {1, 2};
      s.search->expert = {1, 2, 8};
      s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
      s.search->recompute = {Recompute::kNone, Recompute::kFull};
      ExpectSameInSpace(s);
    }
  }
}

// No experts in the first layers (DeepSeek), experts in every second (Llama 4 Maverick) or third layer, and
// both at once: in whole models, and in stages that begin and end anywhere in a period.
TEST(ComposedStep, IsPredictWithLayersOfSeveralKinds) {
  for (const auto& [first_dense, every] : {std::pair<int64_t, int64_t>{3, 1}, {0, 2}, {1, 3}, {5, 2}}) {
    Scenario s = Base(every == 1);
    s.model.layers = 15;
    s.model.experts = ExpertsSpec{.count = 8,
                                  .top_k = 2,
                                  .capacity_factor = 1.25,
                                  .first_dense = first_dense,
                                  .every = every,
                                  .dense_ffn = 3 * s.model.hidden};
    s.framework = Framework::kMegatronCore;
    s.optimizer.clip_norm = 1;
    s.search.emplace();
    s.search->tensor = {1, 2};
    s.search->sequence = {true};
    s.search->pipeline = {1, 2, 4};
    s.search->virtual_stages = {1, 2};
    s.search->uneven = {true};
    s.search->expert = {1, 2};
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    s.search->recompute = {Recompute::kNone, Recompute::kFull};
    ExpectSameInSpace(s);
  }
}

// A sliding window in all layers, or in all but every second or third; in models without experts, and with
// layers of both kinds.
TEST(ComposedStep, IsPredictWithWindows) {
  for (const auto& [full_every, every] : {std::pair<int64_t, int64_t>{0, 0}, {2, 0}, {3, 0}, {3, 2}}) {
    Scenario s = Base(every > 0);
    s.model.layers = 14;
    s.model.sliding_window = SlidingWindowSpec{.tokens = s.model.seq_len / 4, .full_every = full_every};
    if (every > 0)
      s.model.experts =
          ExpertsSpec{.count = 8, .top_k = 2, .capacity_factor = 1.25, .first_dense = 1, .every = every};
    s.framework = Framework::kMegatronCore;
    s.search.emplace();
    s.search->tensor = {1, 2};
    s.search->pipeline = {1, 2};
    s.search->virtual_stages = {1, 2};
    s.search->uneven = {true};
    s.search->recompute = {Recompute::kNone, Recompute::kSelective};
    ExpectSameInSpace(s);
  }
}

// Tensor ranks with experts of their own; DeepEP; fp8 in experts' GEMMs.
TEST(ComposedStep, IsPredictWithExpertsOverTensorRanks) {
  for (const ExpertDispatcher dispatcher : {ExpertDispatcher::kAllToAll, ExpertDispatcher::kDeepEp}) {
    Scenario s = Base(true);
    s.model.experts = ExpertsSpec{
        .count = 8, .top_k = 2, .capacity_factor = 0, .imbalance = 1.2, .groups = 4, .top_k_groups = 2};
    s.framework = Framework::kMegatronCore;
    s.precision.compute = Precision::kFp8;
    s.precision.fp8_recipe = Fp8Recipe::kTensorwise;
    s.optimizer.clip_norm = 1;
    s.parallel.expert.tensor = 1;
    s.parallel.expert.dispatcher = dispatcher;
    s.search.emplace();
    s.search->tensor = {1, 2};
    s.search->sequence = {true};
    s.search->pipeline = {1, 2};
    s.search->expert = {1, 2, 8};
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    ExpectSameInSpace(s);
  }
}

// The host waits for the counts of tokens while parameters are gathered with the first forwards.
TEST(ComposedStep, IsPredictWhereHostsWaitOnTheWay) {
  for (const Framework framework : {Framework::kWindtunnel, Framework::kMegatronCore}) {
    Scenario s = Base(true);
    s.model.experts = ExpertsSpec{.count = 8, .top_k = 2, .capacity_factor = 0};
    s.framework = framework;
    s.parallel.data.kind = DataParallelKind::kZero1;
    s.parallel.data.overlap = s.parallel.data.overlap_param_gather = true;
    s.parallel.data.bucket_cap_mb = 1;
    s.search.emplace();
    s.search->tensor = {1, 2};
    s.search->sequence = {true};
    s.search->pipeline = {1, 2, 4};
    s.search->virtual_stages = {1, 2};
    s.search->expert = {2, 4};
    s.search->recompute = {Recompute::kNone, Recompute::kFull};
    ExpectSameInSpace(s);
  }
}

// The host does not wait in forwards of layers without experts, so it reaches the gathers of later layers
// while the device is still at the first.
TEST(ComposedStep, IsPredictWhereHostsComeToLaterGathersFirst) {
  for (const int64_t first_dense : {1, 3, 5}) {
    Scenario s = Base(true);
    s.model.experts = ExpertsSpec{
        .count = 8, .top_k = 2, .capacity_factor = 0, .first_dense = first_dense, .dense_ffn = 8192};
    s.batch = {.micro = 1, .accumulate = 4};
    s.parallel.data.kind = DataParallelKind::kZero1;
    s.parallel.data.overlap = s.parallel.data.overlap_param_gather = true;
    s.search.emplace();
    s.search->pipeline = {2};
    s.search->virtual_stages = {2, 4};
    s.search->expert = {4};
    ExpectSameInSpace(s);
  }
}

// Whichever configuration of a search comes first, the others do not take its costs.
TEST(ComposedStep, IsPredictWhereLayersHaveFactorsOfTheirShape) {
  for (const DataParallelKind kind : {DataParallelKind::kZero1, DataParallelKind::kFsdp}) {
    Scenario s = Base(false);
    s.model.layers = 12;
    s.parallel.data.kind = kind;
    s.parallel.data.size = 4;
    ComposedSteps steps;
    const Profile profile = WithLayerFactors(A100(), s);
    for (const int64_t micro : {4, 1, 2}) {
      s.batch = {.micro = micro, .accumulate = 8 / micro};
      const auto both = Compare(steps, s, profile);
      ASSERT_TRUE(both) << both.error().message;
      EXPECT_EQ(both->composed_time, both->predicted_time) << WordOf(kind) << " " << micro;
    }
  }
}

// Micro-batches that take turns are predicted in full, not composed.
TEST(ComposedStep, DoesNotKnowTurns) {
  ComposedSteps steps;
  Scenario s = Base(false);
  s.model.experts = ExpertsSpec{.count = 8, .top_k = 2, .capacity_factor = 1};
  s.parallel.expert = {.size = 4, .overlap = true};
  const Plan plan = CompilePlan(s).value();
  const auto composed = steps.Compose(s, *MakeProfileCostModel(A100(), plan), Bytes::Max());
  ASSERT_FALSE(composed);
  EXPECT_EQ(composed.error().kind, ErrorKind::kUnsupported);
}

// By ZeRO-1, over tensor ranks, stages and recomputation.
void SearchZero1(Scenario& s) {
  s.search.emplace();
  s.search->tensor = {1, 2};
  s.search->sequence = {true};
  s.search->pipeline = {1, 2};
  s.search->recompute = {Recompute::kNone, Recompute::kFull};
  s.search->kind = {DataParallelKind::kZero1};
}

TEST(ComposedStep, IsPredictInFp8) {
  for (const Framework framework : {Framework::kPytorch, Framework::kMegatronCore}) {
    for (const Fp8Recipe recipe : {Fp8Recipe::kTensorwise, Fp8Recipe::kDelayed, Fp8Recipe::kBlock,
                                   Fp8Recipe::kMxfp8, Fp8Recipe::kNvfp4}) {
      Scenario s = Base(true);
      s.framework = framework;
      s.precision.compute = recipe == Fp8Recipe::kNvfp4 ? Precision::kFp4 : Precision::kFp8;
      s.precision.fp8_recipe = recipe;
      if (recipe == Fp8Recipe::kNvfp4 && framework != Framework::kMegatronCore) continue;
      SearchZero1(s);
      ExpectSameInSpace(s);
    }
  }
}

// Weights that are converted and gathered in fp8, by ZeRO-1 and by FSDP.
TEST(ComposedStep, IsPredictWithWeightsInFp8) {
  for (const Fp8Recipe recipe :
       {Fp8Recipe::kTensorwise, Fp8Recipe::kDelayed, Fp8Recipe::kBlock, Fp8Recipe::kMxfp8}) {
    Scenario s = Base(true);
    s.framework = Framework::kMegatronCore;
    s.precision.compute = Precision::kFp8;
    s.precision.fp8_recipe = recipe;
    s.precision.fp8_param_gather = true;
    s.parallel.data.overlap_param_gather = recipe == Fp8Recipe::kTensorwise;
    SearchZero1(s);
    ExpectSameInSpace(s);
  }
  Scenario s = Base(true);
  s.model.layers = 12;
  s.framework = Framework::kPytorchCompile;
  s.precision.compute = Precision::kFp8;
  s.precision.fp8_recipe = Fp8Recipe::kTensorwise;
  s.precision.fp8_param_gather = true;
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.parallel.data.size = 4;
  ComposedSteps steps;
  ExpectSame(steps, s, "fsdp");
}

// How fast products run under a power limit depends on what else a layer does, so also on gradients that are
// accumulated or reduced. Steps in which that differs share no costs.
TEST(ComposedStep, IsPredictUnderAPowerLimit) {
  Scenario s = Base(true);
  s.cluster.device = "h100-sxm-80g";
  s.framework = Framework::kMegatronCore;
  s.parallel.pipeline = {.size = 2, .schedule = "1f1b", .balance = {4, 4}};
  ComposedSteps steps;
  for (const auto kind : {DataParallelKind::kDdp, DataParallelKind::kZero1}) {
    for (const int64_t micro_batches : {1, 2}) {
      s.parallel.data.kind = kind;
      s.parallel.data.size = 4;
      s.batch = {.micro = 1, .accumulate = micro_batches};
      ExpectSame(steps, s, fmt::format("kind {}, {} micro-batches", static_cast<int>(kind), micro_batches));
    }
  }
}

// A product that waits for the tokens of other ranks frees this rank's own, after the strategy's buffer for
// its gradient has been allocated and padded.
TEST(ComposedStep, FreesWhatHasBeenSentWithTheProductThatWaits) {
  Scenario s = Base(false);
  s.model.layers = 10;
  s.model.hidden = 32;
  s.model.head_dim = 8;
  s.model.ffn = 128;
  s.model.seq_len = 16;
  s.model.attention = AttentionKind::kEager;
  s.model.activation = ActivationKind::kGelu;
  s.model.norm = NormKind::kLayerNorm;
  s.model.position = PositionKind::kLearned;
  s.model.tie_embeddings = true;
  s.model.dropout = 0.1;
  s.model.bias = false;
  s.precision.param = s.precision.compute = Precision::kFp32;
  s.cross_entropy = CrossEntropyKind::kFused;
  s.framework = Framework::kPytorch;
  s.allocator = AllocatorKind::kPytorch;
  s.recompute = Recompute::kSelectiveOp;
  s.batch = {.micro = 2, .accumulate = 1};
  s.parallel.data = {.kind = DataParallelKind::kZero1, .size = 3, .bucket_cap_mb = 0.05};
  s.parallel.tensor = {.size = 2, .sequence = true, .overlap = true};
  s.parallel.pipeline = {.size = 2, .schedule = "none", .balance = {5, 5}};
  s.cluster.devices_per_node = 12;
  ComposedSteps steps;
  ExpectSame(steps, s, "padded buckets");
}

// What is known of a step that does not fit into little memory is no answer for more.
TEST(ComposedStep, TakesEachCapacityByItself) {
  const Scenario s = Base(true);
  ComposedSteps steps;
  const Plan plan = CompilePlan(s).value();
  const auto model = MakeProfileCostModel(A100(), plan);
  const Bytes little = MiB(1);
  EXPECT_GT(steps.Compose(s, *model, little)->memory(), little);
  ExpectSame(steps, s, "with more memory");
}

// The variants that searches over sharded models have.
TEST(ComposedStep, IsPredictOfShards) {
  for (const int version : {1, 2}) {
    for (const GradientSync sync : {GradientSync::kLastMicroBatch, GradientSync::kEveryMicroBatch}) {
      Scenario s = Base(true);
      s.model.layers = 20;
      s.framework = Framework::kPytorchCompile;
      s.optimizer.clip_norm = 1;
      s.parallel.data.kind = DataParallelKind::kFsdp;
      s.parallel.data.size = 8;
      s.parallel.data.version = version;
      s.parallel.data.sync = sync;
      s.batch = {.micro = 1, .accumulate = 8};
      s.search.emplace();
      s.search->tensor = {1, 2};
      s.search->sequence = {true};
      s.search->micro = {1, 2, 4};
      s.search->recompute = {Recompute::kNone, Recompute::kSelectiveOp, Recompute::kFull};
      s.search->sharding = {Sharding::kFullShard, Sharding::kShardGradOp, Sharding::kHybridShard};
      s.search->shard_size = {2, 8};
      ExpectSameInSpace(s);
    }
  }
}

// What the configurations of a search share is the same with activations on the host and without.
TEST(ComposedStep, IsPredictOfShardsWithActivationsOnTheHost) {
  ComposedSteps steps;
  for (const Offload offload : {Offload::kNone, Offload::kParam}) {
    for (const bool on_host : {false, true, false}) {
      Scenario s = Base(true);
      s.model.layers = 16;
      s.framework = Framework::kPytorch;
      s.parallel.data.kind = DataParallelKind::kFsdp;
      s.parallel.data.size = 8;
      s.parallel.data.offload = offload;
      s.activation_offload = on_host;
      ExpectSame(steps, s, on_host ? "on the host" : "on the device");
    }
  }
}

TEST(ComposedStep, IsPredictOfShardsWithLayersOfSeveralKinds) {
  for (const auto& [first_dense, every] : {std::pair<int64_t, int64_t>{3, 1}, {0, 2}, {1, 3}, {0, 4}}) {
    Scenario s = Base(true);
    s.model.layers = 40;
    s.model.experts = ExpertsSpec{
        .count = 8, .top_k = 2, .capacity_factor = 1.25, .first_dense = first_dense, .every = every};
    s.framework = Framework::kPytorch;
    s.parallel.data.kind = DataParallelKind::kFsdp;
    s.parallel.data.size = 8;
    s.parallel.data.version = 2;
    ComposedSteps steps;
    ExpectSame(steps, s, fmt::format("{} without, every {}", first_dense, every));
    ComposedSteps with_windows;  // for another model
    s.model.layers = 80;
    s.model.sliding_window = SlidingWindowSpec{.tokens = s.model.seq_len / 4, .full_every = 2};
    ExpectSame(with_windows, s, fmt::format("{} without, every {}, windows", first_dense, every));
  }
}

}  // namespace
}  // namespace windtunnel
