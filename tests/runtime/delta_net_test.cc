// Models with gated delta networks (model.delta_net) between layers with gated attention, with an MLP or
// experts and a gated shared expert behind each, as Qwen3-Next: gradients are those of the loss; one device's
// losses and weights in every strategy; peaks to the byte.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/loss_gradients.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using enum DataParallelKind;

// Two heads of keys, each of two heads of values.
Scenario DeltaNet(Scenario s, std::string pattern) {
  s.name += "-" + pattern;
  s.model.delta_net = DeltaNetSpec{.pattern = std::move(pattern),
                                   .key_heads = 2,
                                   .value_heads = 4,
                                   .key_dim = 5,
                                   .value_dim = 8,
                                   .conv = 3};
  s.model.layers = LayersInPattern(s.model.delta_net->pattern);
  return s;
}
Scenario Gated(Scenario s) {
  s.model.attention_gate = true;
  s.model.qk_norm = true;
  return s;
}
// In the style of Qwen3.5, and of gated delta networks alone.
Scenario TinyQwen(int64_t ranks = 1) { return Gated(DeltaNet(TinyLlama(ranks), "G-G-*-")); }
Scenario TinyDelta(int64_t ranks = 1) { return Tied(DeltaNet(TinyLlama(ranks), "GG")); }
Scenario TinyMixture(int64_t ranks = 1) {
  Scenario s = Gated(DeltaNet(TinyLlama(ranks), "GE*EGE"));
  s.model.experts =
      ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 4.0, .shared_ffn = 48, .shared_gate = true};
  return s;
}
Scenario Further(Scenario s) {
  s.model.mtp = TokenPredictionSpec{.layers = 1, .loss_weight = 0.5, .pattern = "*E"};
  return s;
}
Scenario ByFourKeys(Scenario s) {
  s.model.delta_net->key_heads = 4;
  return s;
}
Scenario Accumulated(Scenario s) {
  s.batch.accumulate = 3;
  return s;
}

class DeltaNetParity : public testing::TestWithParam<ParityCase> {};

TEST_P(DeltaNetParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(DeltaNetParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, DeltaNetParity,
    testing::Values(
        ParityCase{"Ddp", Clipped(Kind(TinyQwen(2), kDdp))},
        ParityCase{"Accumulated", Accumulated(TinyDelta(2))}, ParityCase{"Zero1", Kind(TinyQwen(2), kZero1)},
        ParityCase{"Fsdp", Clipped(Kind(TinyMixture(2), kFsdp))},
        ParityCase{"Fsdp1", Kind(TinyDelta(2), kFsdp, 1)}, ParityCase{"Replicas", Kind(TinyQwen(2), kDp)},
        ParityCase{"Tensor", Clipped(Tensor(TinyQwen(), false))},
        ParityCase{"TensorSequence", Clipped(Tensor(TinyMixture(), true))},
        ParityCase{"Overlapped", Overlapped(Tensor(TinyQwen(), true))},
        ParityCase{"TensorFsdp", Tensor(Kind(TinyQwen(2), kFsdp), true)},
        ParityCase{"Dropping", Dropping(TinyQwen(2))},
        ParityCase{"Recomputed", Recomputed(TinyMixture(2), Recompute::kFull)},
        ParityCase{"SomeRecomputed", With(Recomputed(TinyQwen(2), Recompute::kFull),
                                          [](Scenario& s) { s.recompute_layers = 1; })},
        ParityCase{"ModulesAgain",
                   MadeAgain(TinyQwen(2), {RecomputeModule::kCoreAttention, RecomputeModule::kMlp,
                                           RecomputeModule::kLayerNorm})},
        ParityCase{"ExpertsAgain", MadeAgain(TinyMixture(2), {RecomputeModule::kMoe})},
        ParityCase{"SharedExpertAgain", MadeAgain(TinyMixture(2), {RecomputeModule::kSharedExperts})},
        ParityCase{"Pipeline", Staged(TinyQwen(), "1f1b")},
        ParityCase{"ZeroBubble", Staged(TinyMixture(), "zb_h1")},
        ParityCase{"PipelineTensor", Staged(Tensor(TinyQwen(), true), "gpipe")},
        ParityCase{"Offloaded", With(Kind(TinyQwen(2), kFsdp),
                                     [](Scenario& s) { s.parallel.data.offload = Offload::kParam; })},
        ParityCase{"ActivationsOnTheHost",
                   With(TinyQwen(2), [](Scenario& s) { s.activation_offload = true; })},
        ParityCase{"ExpertsApart", With(TinyMixture(2), [](Scenario& s) { s.parallel.expert.size = 2; })},
        ParityCase{"FurtherTokens", Clipped(Kind(Further(TinyMixture(2)), kZero1))}),
    NameOf);

// Context ranks exchange tokens of all heads for all tokens of some.
INSTANTIATE_TEST_SUITE_P(
    OverContext, DeltaNetParity,
    testing::Values(ParityCase{"Ulysses", Clipped(Context(Kind(TinyQwen(), kDdp), ContextKind::kUlysses))},
                    ParityCase{"Ring", Clipped(Context(Kind(TinyQwen(), kDdp), ContextKind::kRing))},
                    ParityCase{"OfFour", Context(Kind(ByFourKeys(TinyDelta()), kDdp), ContextKind::kRing, 4)},
                    ParityCase{"Fsdp", Context(Kind(TinyQwen(2), kFsdp), ContextKind::kRing)},
                    ParityCase{
                        "TensorSequence",
                        Tensor(Context(Kind(ByFourKeys(TinyQwen()), kZero1), ContextKind::kAllGather), true)},
                    ParityCase{"RecomputedInZigzag",
                               Recomputed(Dropping(Context(Kind(TinyQwen(), kDdp), ContextKind::kRing)),
                                          Recompute::kFull)}),
    NameOf);

TEST(DeltaNetModels, GradientsAreThoseOfTheLoss) {
  for (const Scenario& s : {TinyQwen(), TinyDelta(), TinyMixture()}) ExpectGradientsOfTheLoss(s);
}

TEST(DeltaNetModels, TrainsInSixteenBits) {
  for (const Scenario& s : {Kind(TinyQwen(2), kFsdp), Tensor(TinyMixture(), true)})
    ExpectTrainsAlongOneDevice(s, 0.02);
}

TEST(DeltaNetModels, TrainsUnderAutocast) {
  Scenario s = TinyMixture(2);
  s.precision = {.param = Precision::kFp32, .compute = Precision::kBf16, .reduce = Precision::kFp32};
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 1e-3};
  const Trained trained = Train(*CompilePlan(s), kParitySteps);
  EXPECT_LT(trained.losses.back(), trained.losses.front());
}

TEST(DeltaNetModels, PeaksAreExact) {
  for (const Scenario& s : {TinyQwen(), Kind(TinyMixture(2), kFsdp), Tensor(TinyQwen(2), true),
                            Recomputed(TinyMixture(2), Recompute::kFull), Staged(TinyQwen(), "1f1b"),
                            Context(Kind(TinyQwen(2), kDdp), ContextKind::kRing)}) {
    SCOPED_TRACE(s.name);
    ExpectExactPeaks(*CompilePlan(s));
  }
}

// By hand: the table, the head and the final norm; of each gated delta network a norm, the two projections
// (of 32 to 2 x 2 x 5 + 2 x 4 x 8 + 2 x 4 columns, and back from 32), the convolution of 52 columns over 3
// tokens, two numbers a head, and the norm of 8; of attention a norm, 32 to twice 4 x 8 and 2 x 2 x 8 columns
// and back, and two norms of 8; of each MLP a norm and three matrices of 32 x 96.
TEST(DeltaNetModels, CountsItsParametersAndFlops) {
  const Plan plan = *CompilePlan(TinyQwen());
  const int64_t ffn = plan.scenario.model.ffn;
  const int64_t net = 32 + 32 * 92 + 32 * 32 + 52 * 3 + 2 * 4 + 8;
  const int64_t mlp = 32 + 3 * 32 * ffn, attention = 32 + 32 * (64 + 32) + 32 * 32 + 2 * 8;
  EXPECT_EQ(plan.model.parameters, 2 * 64 * 32 + 32 + 2 * net + 3 * mlp + attention);
  // Six a parameter; attention over all tokens in one layer; four multiply-adds a number of the states in
  // two, and twice that backward.
  const double expected =
      6.0 * static_cast<double>(plan.model.parameters) + 12.0 * 32 * 16 + 24.0 * 2 * 32 * 5;
  EXPECT_DOUBLE_EQ(plan.model.flops_per_token.count(), expected);
}

}  // namespace
}  // namespace windtunnel
