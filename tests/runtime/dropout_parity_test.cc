// Dropout, live: however a step is divided among ranks, they drop what one device drops, and recomputation drops
// the same elements again. (That a resumed job goes on bit by bit, and that evaluation drops nothing:
// tests/runtime/checkpoint.)
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

constexpr auto kDdp = DataParallelKind::kDdp, kZero1 = DataParallelKind::kZero1,
               kZero2 = DataParallelKind::kZero2, kFsdp = DataParallelKind::kFsdp;

Scenario Accumulated(Scenario s) {
  s.batch.accumulate = 2;
  return s;
}
Scenario Eager(Scenario s) {
  s.model.attention = AttentionKind::kEager;
  return s;
}
Scenario Flash(Scenario s) {
  s.model.attention = AttentionKind::kFlash;
  return s;
}
Scenario Experts(Scenario s, int64_t ranks) {
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 2};
  s.parallel.expert.size = ranks;
  return s;
}
Scenario Further(Scenario s) {
  s.model.mtp = TokenPredictionSpec{.layers = 1, .loss_weight = 0.5};
  return s;
}
Scenario Latent(Scenario s) {
  s.model.kv_heads = s.model.heads;
  s.model.head_dim = 12;
  s.model.latent_attention = LatentAttentionSpec{.q_rank = 10, .kv_rank = 14, .rope_dim = 4, .value_dim = 6};
  return s;
}
// Three layers, of which tensor ranks divide the first two.
Scenario Deep(Scenario s) {
  s.model.widths = {10, 40, 30, 10};
  return s;
}

class DropoutParity : public testing::TestWithParam<ParityCase> {};

TEST_P(DropoutParity, LossesWithAdamW) { ExpectLossParity(Dropping(GetParam().scenario)); }
TEST_P(DropoutParity, WeightsWithSgd) { ExpectWeightParity(Dropping(GetParam().scenario)); }
TEST_P(DropoutParity, PeaksArePredictedToTheByte) {
  const auto plan = CompilePlan(Dropping(GetParam().scenario));
  ASSERT_TRUE(plan) << plan.error().message;
  ExpectExactPeaks(*plan);
}

INSTANTIATE_TEST_SUITE_P(
    Data, DropoutParity,
    testing::Values(ParityCase{"Ddp", TinyGpt(2)}, ParityCase{"DdpOfThree", Flash(TinyGpt(3))},
                    ParityCase{"DdpAccumulated", Accumulated(TinyGpt(2))}, ParityCase{"Mlp", TinyMlp(2)},
                    ParityCase{"MlpAccumulated", Accumulated(Deep(TinyMlp(3)))},
                    ParityCase{"DataParallel", Dp(TinyGpt(2))},
                    ParityCase{"DataParallelAccumulated", Dp(Accumulated(Flash(TinyGpt(3))))},
                    ParityCase{"Zero1", Kind(TinyLlama(2), kZero1)},
                    ParityCase{"Zero2Clipped", Clipped(Kind(TinyGpt(3), kZero2))},
                    ParityCase{"Fsdp", Kind(TinyGpt(2), kFsdp)},
                    ParityCase{"Fsdp1Accumulated", Accumulated(Kind(TinyLlama(2), kFsdp, 1))}),
    NameOf);
INSTANTIATE_TEST_SUITE_P(
    Recomputation, DropoutParity,
    testing::Values(ParityCase{"Full", Recomputed(Kind(TinyGpt(2), kFsdp), Recompute::kFull)},
                    ParityCase{"FullFlash", Recomputed(Flash(TinyGpt(2)), Recompute::kFull)},
                    ParityCase{"Selective", Recomputed(TinyGpt(2), Recompute::kSelective)},
                    ParityCase{"SelectiveFlash", Recomputed(TinyLlama(2), Recompute::kSelective)},
                    ParityCase{"SelectiveOp", Recomputed(TinyGpt(2), Recompute::kSelectiveOp)},
                    ParityCase{"Modules", MadeAgain(TinyGemma3(2),
                                                    {RecomputeModule::kMlp, RecomputeModule::kLayerNorm})},
                    ParityCase{"FullTensorSequence", Recomputed(Tensor(TinyLlama(), true), Recompute::kFull)},
                    ParityCase{"FullStaged", Recomputed(Staged(TinyGpt(), "1f1b"), Recompute::kFull)}),
    NameOf);
INSTANTIATE_TEST_SUITE_P(Tensor, DropoutParity,
                         testing::Values(ParityCase{"Gpt", Tensor(TinyGpt(), false)},
                                         ParityCase{"GptSequence", Tensor(TinyGpt(2), true)},
                                         ParityCase{"LlamaSequence", Tensor(TinyLlama(), true)},
                                         ParityCase{"Mlp", Tensor(Deep(TinyMlp(2)), false)},
                                         ParityCase{"ExpertsSequence",
                                                    Tensor(Experts(TinyLlama(2), 2), true)}),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(
    Context, DropoutParity,
    testing::Values(ParityCase{"Ring", Context(TinyLlama(), ContextKind::kRing)},
                    ParityCase{"RingOfFour", Context(TinyGpt(), ContextKind::kRing, 4)},
                    ParityCase{"AllGather", Context(TinyLlama(2), ContextKind::kAllGather)},
                    ParityCase{"Ulysses", Context(TinyGpt(2), ContextKind::kUlysses)},
                    ParityCase{"UlyssesTensorSequence",
                               Context(Tensor(FourHeads(TinyGpt()), true), ContextKind::kUlysses)},
                    ParityCase{"RingTensorSequence", Context(Tensor(TinyLlama(), true), ContextKind::kRing)}),
    NameOf);
INSTANTIATE_TEST_SUITE_P(
    Models, DropoutParity,
    testing::Values(ParityCase{"Experts", Experts(TinyGpt(2), 2)},
                    ParityCase{"Windowed", Windowed(TinyLlama(2))},
                    ParityCase{"WindowedEager", Windowed(Eager(TinyLlama(2)))},
                    ParityCase{"Mtp", Further(TinyLlama(2))}, ParityCase{"Latent", Latent(TinyLlama(2))},
                    ParityCase{"LatentTensorSequence", Latent(Tensor(TinyLlama(), true))}),
    NameOf);
INSTANTIATE_TEST_SUITE_P(Pipeline, DropoutParity,
                         testing::Values(ParityCase{"Gpipe", Staged(TinyGpt(), "gpipe")},
                                         ParityCase{"OneF1bDdp", Staged(TinyLlama(2), "1f1b")},
                                         ParityCase{"ZeroBubble", Staged(TinyGpt(), "zb_h1")},
                                         ParityCase{"TensorSequence",
                                                    Staged(Tensor(TinyGpt(), true), "1f1b")}),
                         NameOf);

// The second forward is the first one, to the bit.
TEST(Dropout, RecomputationChangesNothing) {
  for (const Scenario& s : {Dropping(TinyGpt(2)), Dropping(TinyLlama(2))}) {
    const Trained kept = Train(*CompilePlan(s), kParitySteps);
    for (const Recompute recompute : {Recompute::kFull, Recompute::kSelective, Recompute::kSelectiveOp}) {
      const Trained again = Train(*CompilePlan(Recomputed(s, recompute)), kParitySteps);
      EXPECT_EQ(again.losses, kept.losses);
      EXPECT_EQ(again.weights, kept.weights);
    }
  }
}

// Dropout acts, and as another seed has it, otherwise.
TEST(Dropout, ChangesTheLossesByTheSeed) {
  Scenario s = Dropping(TinyGpt(1));
  const Trained trained = Train(*CompilePlan(s), 3);
  EXPECT_EQ(Train(*CompilePlan(s), 3).losses, trained.losses);
  s.model.dropout = 0;
  EXPECT_NE(Train(*CompilePlan(s), 3).losses, trained.losses);
}

}  // namespace
}  // namespace windtunnel
