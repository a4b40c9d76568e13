// Models with an encoder and a decoder (model.encoder), and relative positions (model.position): gradients
// are those of the loss; one device's losses and weights in every strategy; peaks to the byte.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

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

// Sources of 24 tokens, sequences of 16.
Scenario WithEncoder(Scenario s) {
  s.name += "-encoder";
  s.model.encoder = EncoderSpec{.layers = 3, .seq_len = 24};
  return s;
}
Scenario Relative(Scenario s) {
  s.name += "-relative";
  s.model.position = PositionKind::kRelative;
  s.model.attention = AttentionKind::kEager;
  return s;
}
// In the style of T5; with norms behind each part of a block and learned positions, of BART; with rotary
// positions, gated MLPs and grouped queries, of T5Gemma.
Scenario TinyT5(int64_t ranks = 1) {
  Scenario s = Relative(WithEncoder(TinyGpt(ranks)));
  s.model.norm = NormKind::kRmsNorm;
  s.model.bias = s.model.qkv_bias = false;
  return s;
}
Scenario TinyBart(int64_t ranks = 1) {
  Scenario s = Tied(WithEncoder(TinyGpt(ranks)));
  s.model.residual_from_norm = true;
  return s;
}
Scenario TinyT5Gemma(int64_t ranks = 1) { return WithEncoder(TinyLlama(ranks)); }
Scenario Flash(Scenario s) {
  s.model.attention = AttentionKind::kFlash;
  return s;
}
Scenario Eager(Scenario s) {
  s.model.attention = AttentionKind::kEager;
  return s;
}
Scenario Accumulated(Scenario s) {
  s.batch.accumulate = 3;
  return s;
}

Scenario Wrapped(Scenario s, std::vector<std::string> modules) {
  s.parallel.data.wrap = {.kind = WrapPolicy::Kind::kModules, .modules = std::move(modules)};
  return s;
}

class EncoderParity : public testing::TestWithParam<ParityCase> {};

TEST_P(EncoderParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(EncoderParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, EncoderParity,
    testing::Values(
        ParityCase{"Ddp", Clipped(Kind(TinyT5(2), kDdp))},
        ParityCase{"Accumulated", Accumulated(TinyBart(2))}, ParityCase{"Zero1", Kind(TinyBart(2), kZero1)},
        ParityCase{"Zero2", Kind(TinyT5Gemma(2), kZero2)}, ParityCase{"Zero3", Kind(TinyT5(2), kZero3)},
        ParityCase{"Fsdp", Kind(TinyBart(2), kFsdp)}, ParityCase{"Fsdp1", Kind(TinyT5Gemma(2), kFsdp, 1)},
        ParityCase{"Tensor", Tensor(TinyBart(), false)},
        ParityCase{"TensorSequence", Clipped(Tensor(TinyT5Gemma(), true))},
        ParityCase{"Overlapped", Overlapped(Tensor(TinyT5(), true))},
        ParityCase{"Flash", Dropping(Flash(TinyBart(2)))},
        ParityCase{"Relative", Kind(Relative(TinyLlama(2)), kFsdp)},
        ParityCase{"RelativeTensor", Tensor(Tied(Relative(TinyGpt())), true)},
        ParityCase{"RelativeRecomputed", Recomputed(Dropping(TinyT5(2)), Recompute::kFull)},
        ParityCase{"RelativeEverySecond", Recomputed(Relative(TinyLlama(2)), Recompute::kSelectiveOp)},
        ParityCase{"RelativeReplicas", Kind(Relative(TinyGpt(2)), kDp)},
        ParityCase{"RelativeApart",
                   Wrapped(Kind(TinyT5(2), kFsdp), {"encoder.relative", "relative", "*.*.cross"})},
        ParityCase{"SomeRecomputed", With(Recomputed(TinyT5Gemma(2), Recompute::kFull),
                                          [](Scenario& s) { s.recompute_layers = 1; })},
        ParityCase{"InChunks",
                   With(Kind(TinyBart(2), kFsdp), [](Scenario& s) { s.cross_entropy_chunks = 2; })},
        ParityCase{"Offloaded", With(Kind(TinyT5(2), kFsdp),
                                     [](Scenario& s) { s.parallel.data.offload = Offload::kParam; })},
        ParityCase{"TensorFsdp", Tensor(Kind(TinyT5Gemma(2), kFsdp), true)},
        ParityCase{"Recomputed", Recomputed(Dropping(Eager(TinyBart(2))), Recompute::kFull)},
        ParityCase{"CoreAgain", MadeAgain(Dropping(TinyT5(2)), {RecomputeModule::kCoreAttention})},
        ParityCase{"MlpAgain",
                   MadeAgain(TinyT5Gemma(2), {RecomputeModule::kCoreAttention, RecomputeModule::kMlp})}),
    NameOf);

TEST(Encoder, GradientsAreThoseOfTheLoss) {
  for (const Scenario& s : {TinyT5(), TinyBart(), TinyT5Gemma(), Eager(TinyT5Gemma()), Relative(TinyGpt())})
    ExpectGradientsOfTheLoss(s);
}

TEST(Encoder, TrainsInSixteenBits) {
  for (const Scenario& s : {Kind(TinyT5(2), kFsdp), Tensor(TinyBart(), true)})
    ExpectTrainsAlongOneDevice(s, 0.02);
}

// Of three and two layers, the first of each half.
TEST(Encoder, RecomputedLayersAreCountedInEachHalf) {
  Scenario s = Recomputed(TinyT5(), Recompute::kFull);
  s.recompute_layers = 1;
  std::vector<bool> again;
  for (int64_t layer = 0; layer < s.model.AllLayers(); ++layer) again.push_back(s.RecomputesLayer(layer, 0));
  EXPECT_EQ(again, (std::vector<bool>{true, false, false, true, false}));
  EXPECT_DOUBLE_EQ(s.RecomputedShare(), 0.4);
  const Plan plan = *CompilePlan(s);
  std::set<int> layers;
  for (const Op& op : plan.roles[0].steady.ops)
    if (op.phase == Phase::kRecompute) layers.insert(op.layer);
  EXPECT_EQ(layers, (std::set<int>{0, 3}));
}

// Per sample, by hand: weights of GEMMs that 24 tokens of the source go through (three blocks of 4 x 32^2 and
// 2 x 32 x 128, and 2 x 32^2 of each of the decoder's two blocks), and 16 others (in each block 6 x 32^2 and
// the MLP; the head), six times; attention in full, with heads of 32 columns in all; and norms and biases by
// distance for all tokens.
TEST(Encoder, FlopsAreCountedByWhatTokensGoThrough) {
  const Plan plan = *CompilePlan(Tied(TinyT5()));
  const double source = 3 * (4096 + 8192) + 2 * 2048, others = 2 * (6144 + 8192) + 64 * 32;
  const double attention = 12 * 32 * (3 * 24 * 24 + 2 * (16 * 16 + 16 * 24));
  const double all = 40 * (7 * 32 + 7 * 32 + 2 * 2 * 32);
  EXPECT_NEAR(plan.model.flops_per_token.count() * 40, 6 * (24 * source + 16 * others + all) + attention, 1);
  EXPECT_EQ(plan.model.tokens_per_step, 2 * 40);
}

TEST(Encoder, ProductsOfCrossAttentionTakeFp8) {
  Scenario s = Flash(TinyBart());
  s.framework = Framework::kMegatronCore;
  s.precision = {.param = Precision::kBf16, .compute = Precision::kFp8, .fp8_recipe = Fp8Recipe::kTensorwise};
  s.cluster.device = "h100-sxm-80g";
  const auto plan = CompilePlan(s);
  ASSERT_TRUE(plan) << plan.error().message;
  int products = 0;
  for (const Op& op : plan->roles[0].steady.ops) {
    if (op.name.find(".cross.") == std::string::npos) continue;
    const auto* gemm = std::get_if<Gemm>(&op.kind);
    if (gemm == nullptr) continue;
    EXPECT_EQ(gemm->dtype, DType::kFloat8) << op.name;
    ++products;
  }
  EXPECT_EQ(products, 2 * 3 * 3) << "three layers of two blocks, forward and twice backward";
}

TEST(Encoder, ItsEmbeddingIsNoUnitOfItsOwn) {
  const auto plan = CompilePlan(Wrapped(Kind(TinyT5(2), kFsdp), {"embedding"}));
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("(model.encoder), so it must stay in the root unit"), std::string::npos)
      << plan.error().message;
}

TEST(Encoder, SequencesAreLearned) {
  Scenario s = TinyT5Gemma();
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 3e-3};
  const Trained trained = Train(*CompilePlan(s), 60);
  EXPECT_LT(trained.losses.back(), 0.9 * trained.losses.front());
}

TEST(Encoder, PeaksAreExact) {
  for (const Scenario& s :
       {TinyT5(), Kind(TinyBart(2), kFsdp), Tensor(TinyT5Gemma(), true),
        Recomputed(TinyBart(), Recompute::kFull), Recomputed(TinyT5(), Recompute::kSelective),
        Dropping(TinyT5Gemma()), Relative(TinyGpt())})
    ExpectExactPeaks(*CompilePlan(s));
}

}  // namespace
}  // namespace windtunnel
