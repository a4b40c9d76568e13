// Models with Mamba-2 layers (model.mamba), alone and between layers with attention, with an MLP, experts or
// nothing behind each: gradients are those of the loss; one device's losses and weights in every strategy;
// peaks to the byte.
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

// Four heads of eight columns in two groups, a state of five columns.
Scenario Mamba(Scenario s, std::string pattern) {
  s.name += "-" + pattern;
  s.model.mamba = MambaSpec{.pattern = std::move(pattern),
                            .state = 5,
                            .head_dim = 8,
                            .heads = 4,
                            .groups = 2,
                            .conv = 3,
                            .chunk = 8};
  s.model.layers = LayersInPattern(s.model.mamba->pattern);
  s.model.position = PositionKind::kNone;
  return s;
}
// In the style of Nemotron-H, of Bamba, and Mamba-2 itself.
Scenario TinyNemotron(int64_t ranks = 1) {
  Scenario s = Mamba(TinyLlama(ranks), "M-M*-");
  s.model.activation = ActivationKind::kSquaredRelu;
  return s;
}
Scenario TinyBamba(int64_t ranks = 1) {
  Scenario s = Mamba(TinyLlama(ranks), "M-*-");
  s.model.position = PositionKind::kRope;
  return s;
}
Scenario TinyMamba(int64_t ranks = 1) { return Tied(Mamba(TinyLlama(ranks), "MM")); }
// Layers without a mixer: the first one and one in the middle. (Nemotron-H 47B has such.)
Scenario MlpsAlone(int64_t ranks = 1) { return Mamba(TinyLlama(ranks), "-M--*"); }
Scenario Experts(Scenario s) {
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 4.0};
  s.model.mamba->pattern = "ME*ME";
  s.model.layers = 3;
  return s;
}
// One module with attention and experts for two depths, as in Nemotron 3 Super.
Scenario Further(Scenario s) {
  s = Experts(std::move(s));
  s.model.experts->latent = 12;
  s.model.mtp = TokenPredictionSpec{.layers = 2, .loss_weight = 0.5, .pattern = "*E", .repeated = true};
  return s;
}
// The module's layer has a mixer, an MLP or experts alone, or is the model's last one.
Scenario FurtherBy(Scenario s, const char* pattern) {
  s = Further(std::move(s));
  s.model.mtp->pattern = pattern;
  return s;
}
Scenario InFourGroups(Scenario s) {
  s.model.mamba->heads = s.model.mamba->groups = 4;
  return s;
}
Scenario Accumulated(Scenario s) {
  s.batch.accumulate = 3;
  return s;
}

class HybridParity : public testing::TestWithParam<ParityCase> {};

TEST_P(HybridParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(HybridParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, HybridParity,
    testing::Values(
        ParityCase{"Ddp", Clipped(Kind(TinyNemotron(2), kDdp))},
        ParityCase{"Accumulated", Accumulated(TinyMamba(2))}, ParityCase{"Zero1", Kind(TinyBamba(2), kZero1)},
        ParityCase{"Zero2", Kind(TinyNemotron(2), kZero2)}, ParityCase{"Zero3", Kind(TinyMamba(2), kZero3)},
        ParityCase{"Fsdp", Clipped(Kind(TinyNemotron(2), kFsdp))},
        ParityCase{"Fsdp1", Kind(TinyMamba(2), kFsdp, 1)}, ParityCase{"Replicas", Kind(TinyBamba(2), kDp)},
        ParityCase{"Tensor", Clipped(Tensor(TinyNemotron(), false))},
        ParityCase{"TensorSequence", Tensor(TinyBamba(), true)},
        ParityCase{"TensorOfMamba", Clipped(Tensor(TinyMamba(), true))},
        ParityCase{"Overlapped", Overlapped(Tensor(TinyNemotron(), true))},
        ParityCase{"TensorFsdp", Tensor(Kind(TinyNemotron(2), kFsdp), true)},
        ParityCase{"Dropping", Dropping(TinyNemotron(2))},
        ParityCase{"Recomputed", Recomputed(TinyNemotron(2), Recompute::kFull)},
        ParityCase{"RecomputedDropping", Recomputed(Dropping(TinyMamba(2)), Recompute::kFull)},
        ParityCase{"SomeRecomputed", With(Recomputed(TinyNemotron(2), Recompute::kFull),
                                          [](Scenario& s) { s.recompute_layers = 1; })},
        ParityCase{"ModulesAgain",
                   MadeAgain(TinyNemotron(2), {RecomputeModule::kCoreAttention, RecomputeModule::kMlp,
                                               RecomputeModule::kLayerNorm})},
        ParityCase{"NormsAgainTensor", MadeAgain(Tensor(TinyMamba(), true), {RecomputeModule::kLayerNorm})},
        ParityCase{"Pipeline", Staged(TinyNemotron(), "1f1b")},
        ParityCase{"ZeroBubble", Staged(TinyNemotron(), "zb_h1")},
        ParityCase{"PipelineTensor", Staged(Tensor(TinyBamba(), true), "gpipe")},
        ParityCase{"InChunks",
                   With(Kind(TinyMamba(2), kFsdp), [](Scenario& s) { s.cross_entropy_chunks = 2; })},
        ParityCase{"Offloaded", With(Kind(TinyNemotron(2), kFsdp),
                                     [](Scenario& s) { s.parallel.data.offload = Offload::kParam; })},
        ParityCase{"ActivationsOnTheHost",
                   With(TinyNemotron(2), [](Scenario& s) { s.activation_offload = true; })},
        ParityCase{"MlpsAlone", Clipped(Kind(MlpsAlone(2), kDdp))},
        ParityCase{"MlpsAloneFsdp", Kind(MlpsAlone(2), kFsdp)},
        ParityCase{"MlpsAloneTensor", Tensor(MlpsAlone(), true)},
        ParityCase{"MlpsAloneRecomputed", Recomputed(Dropping(MlpsAlone(2)), Recompute::kFull)},
        ParityCase{"MlpsAloneAgain",
                   MadeAgain(MlpsAlone(2), {RecomputeModule::kMlp, RecomputeModule::kLayerNorm})},
        ParityCase{"MlpsAlonePipeline", Staged(MlpsAlone(), "zb_h1")},
        ParityCase{"Experts", Experts(TinyNemotron(2))},
        ParityCase{"ExpertsApart",
                   With(Experts(TinyNemotron(2)), [](Scenario& s) { s.parallel.expert.size = 2; })},
        ParityCase{"FurtherTokens", Clipped(Kind(Further(TinyNemotron(2)), kZero1))},
        ParityCase{"FurtherTokensTensor", Tensor(Further(TinyNemotron()), true)},
        ParityCase{"FurtherTokensByMamba", With(Further(TinyNemotron(2)),
                                                [](Scenario& s) {
                                                  s.model.mtp->pattern = "ME";
                                                  s.model.mtp->repeated = false;
                                                  s.parallel.data.kind = kFsdp;
                                                })},
        ParityCase{"FurtherByMambaAlone", FurtherBy(TinyNemotron(2), "M")},
        ParityCase{"FurtherByAttentionAloneRecomputed",
                   Recomputed(FurtherBy(TinyNemotron(2), "*"), Recompute::kFull)},
        ParityCase{"FurtherByAnMlpRecomputed", Recomputed(FurtherBy(TinyNemotron(2), "-"), Recompute::kFull)},
        ParityCase{"FurtherByExpertsTensor", Tensor(FurtherBy(TinyNemotron(), "E"), true)},
        ParityCase{"FurtherByTheLastLayer",
                   With(TinyMamba(2), [](Scenario& s) { s.model.mtp = TokenPredictionSpec{.layers = 2}; })},
        ParityCase{"FurtherTokensPipeline", Staged(Further(TinyNemotron()), "1f1b")}),
    NameOf);

// Context ranks exchange tokens of all heads for all tokens of some.
INSTANTIATE_TEST_SUITE_P(
    OverContext, HybridParity,
    testing::Values(
        ParityCase{"Ulysses", Clipped(Context(Kind(TinyNemotron(), kDdp), ContextKind::kUlysses))},
        ParityCase{"Ring", Clipped(Context(Kind(TinyNemotron(), kDdp), ContextKind::kRing))},
        ParityCase{"Gathered", Context(Kind(TinyBamba(2), kZero1), ContextKind::kAllGather)},
        ParityCase{"OfFour", Context(Kind(InFourGroups(TinyMamba()), kDdp), ContextKind::kRing, 4)},
        ParityCase{"Accumulated", Context(Kind(Accumulated(TinyMamba()), kDdp), ContextKind::kRing)},
        ParityCase{"Fsdp", Context(Kind(TinyNemotron(2), kFsdp), ContextKind::kRing)},
        ParityCase{"TensorSequence",
                   Tensor(Context(Kind(InFourGroups(TinyNemotron()), kZero1), ContextKind::kRing), true)},
        ParityCase{"Recomputed", Recomputed(Dropping(Context(Kind(MlpsAlone(), kDdp), ContextKind::kUlysses)),
                                            Recompute::kFull)},
        ParityCase{"ZeroBubble", Staged(Context(Kind(TinyNemotron(), kDdp), ContextKind::kRing), "zb_h1")},
        ParityCase{
            "RecomputedInZigzag",
            Recomputed(Dropping(Context(Kind(TinyNemotron(), kDdp), ContextKind::kRing)), Recompute::kFull)},
        ParityCase{"ActivationsOnTheHost", With(Context(Kind(TinyNemotron(), kDdp), ContextKind::kRing),
                                                [](Scenario& s) { s.activation_offload = true; })},
        ParityCase{"ExpertsApart", With(Context(Kind(Experts(TinyNemotron()), kDdp), ContextKind::kRing),
                                        [](Scenario& s) { s.parallel.expert.size = 2; })},
        ParityCase{"FurtherTokens", Context(Kind(Further(TinyNemotron()), kDdp), ContextKind::kRing)}),
    NameOf);

TEST(Hybrid, GradientsAreThoseOfTheLoss) {
  for (const Scenario& s : {TinyNemotron(), TinyBamba(), TinyMamba(), MlpsAlone(), Experts(TinyNemotron())})
    ExpectGradientsOfTheLoss(s);
}

TEST(Hybrid, TrainsInSixteenBits) {
  for (const Scenario& s : {Kind(TinyNemotron(2), kFsdp), Tensor(TinyBamba(), true),
                            Context(Kind(TinyNemotron(), kDdp), ContextKind::kRing)})
    ExpectTrainsAlongOneDevice(s, 0.02);
}

TEST(Hybrid, TrainsUnderAutocast) {
  Scenario s = TinyNemotron(2);
  s.precision = {.param = Precision::kFp32, .compute = Precision::kBf16, .reduce = Precision::kFp32};
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 1e-3};
  const Trained trained = Train(*CompilePlan(s), kParitySteps);
  EXPECT_LT(trained.losses.back(), trained.losses.front());
}

TEST(Hybrid, PeaksAreExact) {
  for (const Scenario& s :
       {TinyNemotron(), Kind(TinyMamba(2), kFsdp), Tensor(TinyBamba(2), true), MlpsAlone(),
        Recomputed(TinyNemotron(2), Recompute::kFull), Staged(TinyNemotron(), "1f1b"),
        Context(Kind(TinyNemotron(2), kDdp), ContextKind::kRing), FurtherBy(TinyNemotron(2), "M"),
        Recomputed(FurtherBy(TinyNemotron(2), "-"), Recompute::kFull)}) {
    SCOPED_TRACE(s.name);
    ExpectExactPeaks(*CompilePlan(s));
  }
}

// By hand: the table and the final norm; of each Mamba-2 layer a norm, the two projections (of 32 to 2 x 32 +
// 2 x 10 + 4 columns, and back), the convolution of 52 columns over 3 tokens with biases, three numbers a
// head, and the norm of 32; of the MLP a norm and two matrices of 32 x 128; of attention a norm and 32 to 4 x
// 8 + 2 x 2 x 8 columns and back.
TEST(Hybrid, CountsItsParametersAndFlops) {
  const Plan plan = *CompilePlan(TinyNemotron());
  const int64_t mamba = 32 + 32 * 88 + 32 * 32 + 52 * 4 + 3 * 4 + 32;
  const int64_t mlp = 32 + 2 * 32 * 128, attention = 32 + 32 * 64 + 32 * 32;
  EXPECT_EQ(plan.model.parameters, 2 * 64 * 32 + 32 + 2 * mamba + 2 * mlp + attention);
  // Six a parameter; attention over all tokens in one layer; a scan in two.
  const double expected =
      6.0 * static_cast<double>(plan.model.parameters) + 12.0 * 32 * 16 + 21.0 * 2 * 32 * 5;
  EXPECT_DOUBLE_EQ(plan.model.flops_per_token.count(), expected);
  // A module that is used twice has one set of parameters, which counts twice; and attention twice.
  Scenario further = TinyNemotron();
  further.model.mtp = TokenPredictionSpec{.layers = 2, .pattern = "*-", .repeated = true};
  const Plan again = *CompilePlan(further);
  const int64_t module = 3 * 32 + 2 * 32 * 32 + attention + mlp;
  EXPECT_EQ(again.model.parameters, plan.model.parameters + module);
  EXPECT_DOUBLE_EQ(again.model.flops_per_token.count(),
                   expected + 2 * (6.0 * static_cast<double>(module + 64 * 32) + 12.0 * 32 * 16));
  further.model.mtp->pattern = "M";
  const Plan by_mamba = *CompilePlan(further);
  const int64_t with_mamba = 3 * 32 + 2 * 32 * 32 + mamba;
  EXPECT_EQ(by_mamba.model.parameters, plan.model.parameters + with_mamba);
  EXPECT_DOUBLE_EQ(by_mamba.model.flops_per_token.count(),
                   expected + 2 * (6.0 * static_cast<double>(with_mamba + 64 * 32) + 21.0 * 32 * 5));
}

TEST(Hybrid, PatternsSayWhatFollowsEachMixer) {
  const std::string pattern = "M-M*E--";
  const auto layer = [&](int64_t i) {
    const PatternLayer of = LayerOfPattern(pattern, i);
    return std::string{of.mixer, of.behind};
  };
  EXPECT_EQ(LayersInPattern(pattern), 5);
  EXPECT_EQ(layer(0), "M-");
  EXPECT_EQ(layer(6), std::string({'M', '\0'}));
  EXPECT_EQ(layer(2), "*E");
  EXPECT_EQ(layer(3), std::string({'\0', '-'}));
  EXPECT_EQ(layer(9), std::string({'\0', '-'}));
  Scenario s = Experts(TinyNemotron());
  s.model.layers = 7;  // ME * ME ME * ME ME
  EXPECT_EQ(s.model.RecurrentLayers(), 5);
  EXPECT_EQ(s.model.LayersWithExperts(), 5);
  EXPECT_FALSE(s.model.MixesExperts());
  EXPECT_DOUBLE_EQ(s.model.AttentionTokens(), 2 * 16);
}

}  // namespace
}  // namespace windtunnel
