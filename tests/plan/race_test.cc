// No data of a step is used while another stream still works on it, on a cpu, on a device with queues and on
// a simulated one. The fuzz target `plan` checks the same for random strategies.
#include <gtest/gtest.h>

#include "tests/plan/race_check.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

struct Case {
  const char* name;
  Scenario scenario;
};

Scenario With(Scenario s, void (*change)(Scenario&)) {
  s.parallel.data.bucket_cap_mb = 0.02;
  change(s);
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}

Scenario With(Scenario s, DataParallelKind kind, void (*change)(Scenario&)) {
  s.parallel.data.kind = kind;
  return With(std::move(s), change);
}

Scenario Offloading(DataParallelKind kind, Offload offload, void (*change)(Scenario&)) {
  Scenario s = TinyGpt(2);
  s.parallel.data.offload = offload;
  return With(std::move(s), kind, change);
}

Scenario OffloadingActivations(Scenario s, void (*change)(Scenario&)) {
  s.model.layers = 8;
  s.activation_offload = true;
  return With(std::move(s), change);
}

void MixWithDeltaNets(Scenario& s) {
  s.model.delta_net =
      DeltaNetSpec{.pattern = "G-GG*-", .key_heads = 2, .value_heads = 4, .key_dim = 6, .value_dim = 8};
  s.model.layers = 4;
  s.model.position = PositionKind::kRope;
  s.model.attention_gate = true;
}

void MixWithMamba(Scenario& s) {
  s.model.mamba = MambaSpec{.pattern = "M-MM*-", .state = 5, .head_dim = 8, .heads = 4, .groups = 2};
  s.model.layers = 4;
  s.model.position = PositionKind::kNone;
}

constexpr auto kZero1 = DataParallelKind::kZero1, kZero2 = DataParallelKind::kZero2,
               kFsdp = DataParallelKind::kFsdp;

class Races : public testing::TestWithParam<Case> {};

TEST_P(Races, ThereAreNone) {
  for (const char* device : {"cpu", "cuda", "h100-sxm-80g"}) {
    for (const bool in_bf16 : {false, true}) {
      Scenario s = GetParam().scenario;
      s.cluster.device = device;
      if (s.cluster.device != "cpu") s.run.backend = Backend::kNccl;
      if (in_bf16) s.precision.param = s.precision.compute = s.precision.reduce = Precision::kBf16;
      const auto plan = CompilePlan(s, {.evaluates = true});
      ASSERT_TRUE(plan) << plan.error().message;
      for (const Role& role : plan->roles) {
        std::vector<const Program*> programs = {&role.initialize, &role.steady, &role.restore,
                                                &role.evaluate};
        for (const Program& program : role.startup) programs.push_back(&program);
        for (const Program* program : programs)
          EXPECT_EQ(FindRace(*plan, role, *program), "")
              << device << (in_bf16 ? ", bf16, " : ", ") << program->name;
      }
    }
  }
}

// Weights that are stored in fp8, which is predicted only.
TEST(RacesOfWeightsInFp8, ThereAreNone) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kTensorwise, Fp8Recipe::kDelayed, Fp8Recipe::kMxfp8}) {
    for (const bool is_fsdp : {false, true}) {
      if (is_fsdp && recipe != Fp8Recipe::kTensorwise) continue;
      for (const bool gathers_late : {false, true}) {
        for (const Precision reduce : {Precision::kFp32, Precision::kBf16}) {
          Scenario s = With(TinyLlama(2), is_fsdp ? kFsdp : kZero1, [](Scenario&) {});
          s.framework = is_fsdp ? Framework::kPytorch : Framework::kMegatronCore;
          s.precision = {.param = Precision::kBf16, .compute = Precision::kFp8, .reduce = reduce};
          s.precision.fp8_recipe = recipe;
          s.precision.fp8_param_gather = true;
          s.parallel.data.overlap_param_gather = gathers_late && !is_fsdp;
          s.batch.accumulate = 2;
          s.cluster.device = "b200-sxm-180g";
          const auto plan = CompilePlan(s);
          ASSERT_TRUE(plan) << plan.error().message;
          EXPECT_EQ(FindRace(*plan, plan->roles[0], plan->roles[0].steady), "")
              << static_cast<int>(recipe) << is_fsdp << gathers_late;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, Races,
    testing::Values(
        Case{"Ddp", With(TinyGpt(2), [](Scenario&) {})},
        Case{"DdpClipsAndAccumulates", With(TinyGpt(2),
                                            [](Scenario& s) {
                                              s.batch.accumulate = 2;
                                              s.optimizer.clip_norm = 1;
                                            })},
        Case{"Zero1", With(TinyGpt(2), kZero1, [](Scenario&) {})},
        Case{"Zero1GathersLate",
             With(TinyGpt(2), kZero1, [](Scenario& s) { s.parallel.data.overlap_param_gather = true; })},
        Case{"Zero1OfMegatron",
             With(TinyGpt(2), kZero1, [](Scenario& s) { s.framework = Framework::kMegatronCore; })},
        Case{"Zero2OfDeepspeed", With(TinyGpt(2), kZero2,
                                      [](Scenario& s) {
                                        s.framework = Framework::kDeepspeed;
                                        s.batch.accumulate = 2;
                                      })},
        Case{"Zero1Offloads", Offloading(kZero1, Offload::kOptimizer, [](Scenario&) {})},
        Case{"Zero2", With(TinyGpt(2), kZero2, [](Scenario&) {})},
        Case{"Zero2OffloadsAndClips",
             Offloading(kZero2, Offload::kOptimizer, [](Scenario& s) { s.optimizer.clip_norm = 1; })},
        Case{"Fsdp", With(TinyGpt(2), kFsdp, [](Scenario&) {})},
        Case{"FsdpOffloadsParameters",
             Offloading(kFsdp, Offload::kParam, [](Scenario& s) { s.optimizer.clip_norm = 1; })},
        Case{"FsdpOffloadsTheOptimizer",
             Offloading(kFsdp, Offload::kOptimizer, [](Scenario& s) { s.batch.accumulate = 2; })},
        Case{"ActivationsOffloaded", OffloadingActivations(TinyLlama(2), [](Scenario&) {})},
        Case{"HybridOverTensorRanks", With(TinyLlama(2), kFsdp,
                                           [](Scenario& s) {
                                             MixWithMamba(s);
                                             s.parallel.tensor = {.size = 2, .sequence = true};
                                             s.recompute = Recompute::kFull;
                                           })},
        Case{"DeltaNetsOverTensorRanks", With(TinyLlama(2), kFsdp,
                                              [](Scenario& s) {
                                                MixWithDeltaNets(s);
                                                s.parallel.tensor = {.size = 2, .sequence = true};
                                                s.recompute = Recompute::kFull;
                                              })},
        Case{"DeltaNetsInPipeline", With(TinyLlama(1),
                                         [](Scenario& s) {
                                           MixWithDeltaNets(s);
                                           s.parallel.pipeline.size = 2;
                                           s.parallel.pipeline.schedule = "zb_h1";
                                           s.batch.accumulate = 4;
                                         })},
        Case{"GatedSharedExpert", With(TinyLlama(2), kFsdp,
                                       [](Scenario& s) {
                                         s.model.experts = ExpertsSpec{.count = 4,
                                                                       .top_k = 2,
                                                                       .capacity_factor = 1.5,
                                                                       .shared_ffn = 48,
                                                                       .shared_gate = true};
                                         s.parallel.tensor = {.size = 2, .sequence = true};
                                       })},
        Case{"HybridOverContextRanks", With(TinyLlama(1),
                                            [](Scenario& s) {
                                              MixWithMamba(s);
                                              s.model.attention = AttentionKind::kFlash;
                                              s.parallel.context = {.size = 2, .kind = ContextKind::kRing};
                                              s.parallel.data.kind = DataParallelKind::kDdp;
                                              s.batch.accumulate = 2;
                                            })},
        Case{"HybridInPipeline", With(TinyLlama(1),
                                      [](Scenario& s) {
                                        MixWithMamba(s);
                                        s.parallel.pipeline.size = 2;
                                        s.parallel.pipeline.schedule = "zb_h1";
                                        s.batch.accumulate = 4;
                                      })},
        Case{"ActivationsOffloadedInPipeline", OffloadingActivations(TinyGpt(1),
                                                                     [](Scenario& s) {
                                                                       s.parallel.pipeline.size = 2;
                                                                       s.parallel.pipeline.schedule = "zb_h1";
                                                                       s.batch.accumulate = 4;
                                                                     })},
        Case{"ActivationsOffloadedBesideParameters", OffloadingActivations(TinyLlama(2),
                                                                           [](Scenario& s) {
                                                                             s.parallel.data.kind = kFsdp;
                                                                             s.parallel.data.offload =
                                                                                 Offload::kParam;
                                                                             s.recompute = Recompute::kFull;
                                                                             s.batch.accumulate = 2;
                                                                           })},
        Case{"ActivationsOffloadedOverTensorRanks",
             OffloadingActivations(TinyGpt(1),
                                   [](Scenario& s) {
                                     s.parallel.tensor = {.size = 2, .sequence = true, .overlap = true};
                                   })},
        Case{"ActivationsOffloadedWithDropout",
             OffloadingActivations(TinyGpt(2), [](Scenario& s) { s.model.dropout = 0.1; })},
        Case{"Fsdp1Recomputes", With(TinyLlama(2), kFsdp,
                                     [](Scenario& s) {
                                       s.parallel.data.version = 1;
                                       s.recompute = Recompute::kFull;
                                     })},
        Case{"EagerPytorch", With(TinyLlama(2), kFsdp,
                                  [](Scenario& s) {
                                    s.framework = Framework::kPytorch;
                                    s.precision.param = s.precision.compute = Precision::kBf16;
                                    s.cross_entropy = CrossEntropyKind::kFused;
                                    s.model.qk_norm = true;
                                    s.batch.accumulate = 2;
                                    s.parallel.data.sync = GradientSync::kEveryMicroBatch;
                                  })},
        Case{"TensorAndZero1", With(TinyGpt(2), kZero1,
                                    [](Scenario& s) {
                                      s.parallel.tensor = {.size = 2, .sequence = true};
                                      s.optimizer.clip_norm = 1;
                                    })},
        Case{"TensorOverlapped", With(TinyGpt(2),
                                      [](Scenario& s) {
                                        s.parallel.tensor = {.size = 2, .sequence = true, .overlap = true};
                                        s.recompute = Recompute::kFull;
                                      })},
        Case{"TensorOverlappedOfPyTorch", With(TinyLlama(2), kFsdp,
                                               [](Scenario& s) {
                                                 s.parallel.tensor = {
                                                     .size = 2, .sequence = true, .overlap = true};
                                                 s.framework = Framework::kPytorchCompile;
                                               })},
        Case{"TensorOverlappedOfHalfBackwards", With(TinyLlama(2),
                                                     [](Scenario& s) {
                                                       s.parallel.tensor = {
                                                           .size = 2, .sequence = true, .overlap = true};
                                                       s.parallel.pipeline.size = 2;
                                                       s.parallel.pipeline.schedule = "zb_h1";
                                                       s.batch.accumulate = 4;
                                                     })},
        Case{"TensorAndOffloadedParameters", Offloading(kFsdp, Offload::kParam,
                                                        [](Scenario& s) {
                                                          s.parallel.tensor = {.size = 2, .sequence = true};
                                                          s.optimizer.clip_norm = 1;
                                                        })},
        Case{"HybridShards", With(TinyGpt(4), kFsdp,
                                  [](Scenario& s) {
                                    s.parallel.data.sharding = Sharding::kHybridShard;
                                    s.parallel.data.shard_size = 2;
                                  })},
        Case{"FsdpUpdatesInBackward", With(TinyGpt(2), kFsdp,
                                           [](Scenario& s) {
                                             s.optimizer.in_backward = true;
                                             s.precision.param = s.precision.compute = Precision::kBf16;
                                           })},
        Case{"HybridShardsUpdateInBackward", With(TinyGpt(4), kFsdp,
                                                  [](Scenario& s) {
                                                    s.optimizer.in_backward = true;
                                                    s.optimizer.moments = MomentsType::kInt8;
                                                    s.parallel.data.sharding = Sharding::kHybridShard;
                                                    s.parallel.data.shard_size = 2;
                                                  })},
        Case{"Context", With(TinyGpt(2),
                             [](Scenario& s) {
                               s.model.attention = AttentionKind::kFlash;
                               s.parallel.context.size = 2;
                             })},
        Case{"ShardedExperts", With(TinyLlama(2), kFsdp,
                                    [](Scenario& s) {
                                      s.model.experts =
                                          ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 1.5};
                                      s.parallel.expert.size = 2;
                                      s.optimizer.clip_norm = 1;
                                    })},
        Case{"ExpertsInTurns", With(TinyLlama(2), kZero1,
                                    [](Scenario& s) {
                                      s.model.experts =
                                          ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 1.5};
                                      s.parallel.expert = {.size = 2, .overlap = true};
                                      s.parallel.data.overlap_param_gather = true;
                                      s.batch.accumulate = 3;
                                    })},
        Case{"ExpertsInTurnsGatherLate",
             With(TinyLlama(2), kZero1,
                  [](Scenario& s) {
                    s.model.layers = 4;
                    s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 1.5};
                    s.parallel.expert = {.size = 2, .overlap = true};
                    s.parallel.pipeline = {.size = 2, .schedule = "interleaved", .virtual_stages = 2};
                    s.parallel.data.overlap_param_gather = true;
                    s.recompute = Recompute::kSelective;
                    s.recompute_modules = {RecomputeModule::kCoreAttention, RecomputeModule::kLayerNorm,
                                           RecomputeModule::kMoeActivation};
                    s.batch.accumulate = 4;
                  })},
        Case{"LatentExpertsAndOneModuleForAllDepths",
             With(TinyLlama(2),
                  [](Scenario& s) {
                    s.model.experts = ExpertsSpec{
                        .count = 4, .top_k = 2, .capacity_factor = 1.5, .shared_ffn = 48, .latent = 12};
                    s.model.mtp = TokenPredictionSpec{.layers = 3, .repeated = true};
                    s.parallel.tensor = {.size = 2, .sequence = true};
                    s.parallel.expert.size = 2;
                    s.parallel.data.kind = DataParallelKind::kZero1;
                    s.parallel.pipeline = {.size = 2, .schedule = "zb_h1"};
                    s.batch.accumulate = 4;
                  })},
        Case{"ExpertsInTurnsOfStages",
             With(TinyLlama(2),
                  [](Scenario& s) {
                    s.model.layers = 4;
                    s.model.experts =
                        ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 1.5, .shared_ffn = 48};
                    s.parallel.tensor = {.size = 2, .sequence = true};
                    s.parallel.expert = {.size = 4, .tensor = 1, .overlap = true, .delay_wgrad = true};
                    s.parallel.pipeline = {.size = 2, .schedule = "interleaved", .virtual_stages = 2};
                    s.batch.accumulate = 4;
                  })},
        Case{"ScaledLosses", Offloading(kZero2, Offload::kOptimizer,
                                        [](Scenario& s) {
                                          s.precision.loss_scale = LossScale::kDynamic;
                                          s.optimizer.clip_norm = 1;
                                        })},
        Case{"PipelineAndZero1", With(TinyGpt(2), kZero1,
                                      [](Scenario& s) {
                                        s.parallel.pipeline.size = 2;
                                        s.batch.accumulate = 4;
                                        s.optimizer.clip_norm = 1;
                                      })},
        Case{"PipelineOfHalfBackwards", With(TinyGpt(2),
                                             [](Scenario& s) {
                                               s.parallel.pipeline.size = 2;
                                               s.parallel.pipeline.schedule = "zb_h1";
                                               s.batch.accumulate = 4;
                                             })}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace windtunnel
