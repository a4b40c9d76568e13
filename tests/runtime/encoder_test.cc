// Models with an encoder and a decoder (model.encoder), and relative positions (model.position): gradients are those of the loss; one device's losses and
// weights in every strategy; peaks to the byte.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
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
        ParityCase{"TensorFsdp", Tensor(Kind(TinyT5Gemma(2), kFsdp), true)},
        ParityCase{"Recomputed", Recomputed(Dropping(Eager(TinyBart(2))), Recompute::kFull)},
        ParityCase{"CoreAgain", MadeAgain(Dropping(TinyT5(2)), {RecomputeModule::kCoreAttention})},
        ParityCase{"MlpAgain",
                   MadeAgain(TinyT5Gemma(2), {RecomputeModule::kCoreAttention, RecomputeModule::kMlp})}),
    NameOf);

// One step of SGD along the gradient makes the loss smaller by the learning rate times the gradient's square,
// to first order.
TEST(Encoder, GradientsAreThoseOfTheLoss) {
  for (Scenario s : {TinyT5(), TinyBart(), TinyT5Gemma(), Eager(TinyT5Gemma()), Relative(TinyGpt())}) {
    SCOPED_TRACE(s.name);
    s.batch = {.micro = 4, .accumulate = 2};
    s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 1e-4, .clip_norm = 1e9};
    WithRanks(*CompilePlan(s), [&](RankSession& session, Store&) -> Status {
      Executor& executor = session.executor();
      for (size_t i = 0; i <= executor.role().startup.size(); ++i) WT_RETURN_IF_ERROR(session.Step());
      std::vector<double> losses;
      double norm = 0;
      for (int run = 0; run < 2; ++run) {
        WT_ASSIGN_OR_RETURN([[maybe_unused]] auto timeline, executor.Run(executor.role().steady, 3));
        WT_ASSIGN_OR_RETURN(const std::vector<double> loss, executor.Losses());
        losses.push_back(loss[0]);
        if (run > 0) continue;
        WT_ASSIGN_OR_RETURN(norm, executor.GradientNormValue());
      }
      const double expected = s.optimizer.lr * norm * norm;
      EXPECT_NEAR(losses[0] - losses[1], expected, 0.03 * expected);
      return Ok();
    });
  }
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
