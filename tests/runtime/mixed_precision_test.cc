// Mixed precision as in PyTorch's tutorials, live. Autocast, and fp16 with a scaled loss, train as fp32 does
// up to the type's rounding. All ranks skip a step that overflows. Memory is as predicted.
#include <gtest/gtest.h>

#include <mutex>

#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

constexpr int kSteps = 12;

// The input of a norm behind a branch is small at first, so its gradient is large: 65,536 times that
// overflows fp16, and steps would be skipped.
void SetLossScale(Scenario& s) {
  s.precision.loss_scale = LossScale::kDynamic;
  if (s.model.post_norm) s.precision.init_scale = 1024;
}

Scenario ToFp16(Scenario s) {
  s = Autocast(std::move(s), Precision::kFp16);
  SetLossScale(s);
  return s;
}

// fp16 parameters, fp32 masters.
Scenario InFp16(Scenario s) {
  s.precision = {.param = Precision::kFp16, .compute = Precision::kFp16, .reduce = Precision::kFp32};
  SetLossScale(s);
  return s;
}

// With several buckets.
Scenario Replicas(Scenario s, DataParallelKind kind, int version = 2) {
  s.parallel.data.bucket_cap_mb = 0.02;
  return Kind(std::move(s), kind, version);
}
Scenario Accumulated(Scenario s) {
  s.batch.accumulate = 2;
  return s;
}

constexpr auto kFsdp = DataParallelKind::kFsdp;

std::vector<ParityCase> Cases() {
  return {
      {"Gpt", Tied(TinyGpt())},
      {"GptAccumulated", Accumulated(TinyGpt())},
      {"GptRecomputed", Recomputed(TinyGpt(), Recompute::kFull)},
      {"LlamaEverySecond", Recomputed(TinyLlama(), Recompute::kSelectiveOp)},
      {"Mlp", TinyMlp()},
      {"DdpGpt", TinyGpt(2)},
      {"DdpMlp", TinyMlp(2)},
      {"Zero1Gpt", Replicas(TinyGpt(2), DataParallelKind::kZero1)},
      {"Fsdp1Gpt", Replicas(TinyGpt(2), kFsdp, 1)},
      {"Fsdp2Llama", Replicas(TinyLlama(2), kFsdp)},
      {"Fsdp2LlamaAccumulated", Accumulated(Replicas(TinyLlama(2), kFsdp))},
      {"Fsdp2PipelineGpt", Staged(Replicas(TinyGpt(2), kFsdp), "1f1b")},
      {"Fsdp2ZeroBubbleGpt", Staged(Replicas(TinyGpt(2), kFsdp), "zb_h1")},
      {"Fsdp2LlamaRecomputed", Recomputed(Replicas(TinyLlama(2), kFsdp), Recompute::kFull)},
      {"PipelineGpt", Staged(Tied(TinyGpt()), "1f1b")},
      {"ZeroBubbleGpt", Staged(TinyGpt(), "zb_h1")},
      {"ContextLlama", With(TinyLlama(),
                            [](Scenario& s) {
                              s.parallel.context.size = 2;
                              s.parallel.data.kind = DataParallelKind::kDdp;
                              s.cluster.devices_per_node = 2;
                            })},
      {"ExpertsGpt", With(TinyGpt(2),
                          [](Scenario& s) {
                            s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 4.0};
                            s.parallel.expert.size = 2;
                          })},
      {"TensorGpt", Tensor(TinyGpt(), false)},
      {"TensorQwen3", Tensor(TinyQwen3(), false)},
      {"TensorSequenceGemma3", Tensor(TinyGemma3(), true)},
      {"FsdpOlmo", Replicas(TinyOlmo(2), kFsdp)},
      {"TensorSequenceLlama", Tensor(TinyLlama(), true)},
      {"DataParallelGpt", Replicas(TinyGpt(2), DataParallelKind::kDp)},
  };
}

class MixedPrecision : public testing::TestWithParam<ParityCase> {};
INSTANTIATE_TEST_SUITE_P(Strategies, MixedPrecision, testing::ValuesIn(Cases()), NameOf);

Scenario Optimized(Scenario s) {
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 1e-3, .weight_decay = 0.01, .clip_norm = 1.0};
  return s;
}

Scenario NarrowMoments(Scenario s) {
  s.optimizer.moments = MomentsType::kBf16;
  return s;
}

// Compares the mixed-precision run with the fp32 run of the same layout. Losses are means of many, so they
// differ by less than one rounding.
void ExpectTrainsAlong(const Scenario& mixed, double tolerance) {
  Scenario fp32 = mixed;
  fp32.precision = {};
  fp32.optimizer.moments = MomentsType::kFp32;
  const auto plan = CompilePlan(mixed), exact = CompilePlan(fp32);
  ASSERT_TRUE(plan) << plan.error().message;
  const Trained rounded = Train(*plan, kSteps), whole = Train(*exact, kSteps);
  for (int step = 0; step < kSteps; ++step)
    EXPECT_NEAR(rounded.losses[step], whole.losses[step], tolerance * whole.losses[step]) << "step " << step;
  EXPECT_LT(rounded.losses.back(), rounded.losses.front());
  EXPECT_NE(rounded.losses, whole.losses);  // it was rounded
}

TEST_P(MixedPrecision, AutocastToBf16TrainsAlongFp32) {
  ExpectTrainsAlong(Optimized(Autocast(GetParam().scenario)), 4e-3);  // 8 bits
}
TEST_P(MixedPrecision, AutocastToFp16TrainsAlongFp32) {
  ExpectTrainsAlong(Optimized(ToFp16(GetParam().scenario)), 1e-3);  // 11 bits
}
TEST_P(MixedPrecision, Fp16WithMastersTrainsAlongFp32) {
  ExpectTrainsAlong(Optimized(InFp16(GetParam().scenario)), 1e-3);
}

TEST_P(MixedPrecision, MomentsInBf16TrainAlongFp32) {
  ExpectTrainsAlong(NarrowMoments(Optimized(GetParam().scenario)), 4e-3);
}

TEST_P(MixedPrecision, MemoryIsPredictedToTheByte) {
  ExpectExactPeaks(*CompilePlan(NarrowMoments(Optimized(GetParam().scenario))));
  ExpectExactPeaks(*CompilePlan(Optimized(Autocast(GetParam().scenario))));
  ExpectExactPeaks(*CompilePlan(Optimized(InFp16(GetParam().scenario))));
}

// ---- overflows

struct Told {
  std::vector<LossScaleState> scales;       // after each step
  std::vector<std::vector<float>> weights;  // of the rank, after each step, parameter after parameter
};

// Each rank's loss scale and weights after each step.
std::vector<Told> Follow(const Plan& plan, int steps) {
  std::vector<Told> told(plan.world_size);
  std::mutex mutex;
  WithRanks(plan, [&](RankSession& session, Store&) -> Status {
    Told own;
    for (int step = 0; step < steps; ++step) {
      WT_RETURN_IF_ERROR(session.Step());
      WT_ASSIGN_OR_RETURN(const std::optional<LossScaleState> scale, session.executor().LossScale());
      own.scales.push_back(scale.value_or(LossScaleState{}));
      std::vector<float>& weights = own.weights.emplace_back();
      for (const Parameter& parameter : session.executor().role().parameters) {
        const Placement& place = parameter.values;
        const int position = session.plan().axes[place.axis].position_of_rank[session.rank()];
        const LocalPart part = PartOn(place, parameter.elements, position);
        WT_ASSIGN_OR_RETURN(const auto values,
                            session.executor().Values(Slice{place.buffer, part.offset, part.elements}));
        weights.insert(weights.end(), values.begin(), values.end());
      }
    }
    std::lock_guard lock(mutex);
    told[session.rank()] = std::move(own);
    return Ok();
  });
  return told;
}

// 2^40 times the gradient of a loss overflows fp16.
TEST_P(MixedPrecision, AnOverflowIsSkippedByAllRanksAlikeAndHalvesTheScale) {
  if (GetParam().scenario.parallel.data.kind == DataParallelKind::kDp)
    GTEST_SKIP() << "the first device scales alone";
  for (Scenario s : {InFp16(GetParam().scenario), ToFp16(GetParam().scenario)}) {
    s = Optimized(s);
    s.precision.init_scale = 1099511627776.0;
    const Plan plan = *CompilePlan(s);
    const std::vector<Told> told = Follow(plan, 3);
    ASSERT_FALSE(HasFailure());
    for (const Told& rank : told) {
      EXPECT_EQ(rank.scales[0], (LossScaleState{549755813888.0, 0, 1}));
      EXPECT_EQ(rank.scales, told[0].scales);
      EXPECT_EQ(rank.weights[1], rank.weights[0]);
      for (float weight : rank.weights[2]) ASSERT_TRUE(std::isfinite(weight));
    }
  }
}

// Training continues as if the skipped steps had not been: Adam's bias correction counts only the others.
TEST(LossScaling, SkippedStepsDoNotCount) {
  Scenario s = Optimized(ToFp16(TinyMlp()));
  s.precision.init_scale = 1099511627776.0;
  const std::vector<Told> told = Follow(*CompilePlan(s), 40);
  const int64_t skipped = told[0].scales.back().skipped_steps;
  ASSERT_GT(skipped, 0);
  ASSERT_LT(skipped, 39);
  for (int64_t step = 1; step < skipped; ++step) EXPECT_EQ(told[0].weights[step], told[0].weights[0]);
  EXPECT_NE(told[0].weights[skipped], told[0].weights[0]);
  // Adam's first step moves every weight by the learning rate, up to its decay and eps.
  const std::vector<float>&before = told[0].weights[0], &after = told[0].weights[skipped];
  float most = 0;
  for (size_t i = 0; i < before.size(); ++i) most = std::max(most, std::abs(after[i] - before[i]));
  EXPECT_NEAR(most, 1e-3, 5e-5);
}

TEST(LossScaling, AfterAnIntervalWithoutOverflowTheScaleDoubles) {
  Scenario s = Optimized(ToFp16(TinyMlp(2)));
  s.precision.init_scale = 256;
  s.precision.growth_interval = 3;
  for (const Told& rank : Follow(*CompilePlan(s), 7)) {
    std::vector<double> scales;
    for (const LossScaleState& state : rank.scales) scales.push_back(state.scale);
    EXPECT_EQ(scales, (std::vector<double>{256, 256, 512, 512, 512, 1024, 1024}));
  }
}

// Multiplying by a power of two rounds nothing in fp32, so fp32 with a scaled loss gives the bits of fp32
// without.
TEST(LossScaling, ChangesNothingInFp32) {
  Scenario s = Optimized(TinyGpt(2));
  Scenario scaled = s;
  scaled.precision.static_loss_scale = 4096;
  const Trained a = Train(*CompilePlan(s), kSteps), b = Train(*CompilePlan(scaled), kSteps);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.weights, b.weights);
}

}  // namespace
}  // namespace windtunnel
