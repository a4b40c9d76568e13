// Models that are not causal (model.causal: false) and blocks whose residual stream goes on from norms
// (model.residual_from_norm), as in BERT: gradients are those of the loss over masked tokens; one device's
// losses and weights in every strategy; peaks to the byte.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "runtime/data.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/loss_gradients.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using enum DataParallelKind;

Scenario Bidirectional(Scenario s) {
  s.name += "-bidirectional";
  s.model.causal = false;
  s.model.masked_share = 0.3;
  return s;
}
Scenario FromNorms(Scenario s) {
  s.model.residual_from_norm = true;
  return s;
}
Scenario TinyBert(int64_t ranks = 1) { return Bidirectional(FromNorms(TinyGpt(ranks))); }
Scenario TinyEncoder(int64_t ranks = 1) { return Bidirectional(TinyLlama(ranks)); }
Scenario InChunks(Scenario s) {
  s.cross_entropy_chunks = 2;
  return s;
}
Scenario Eager(Scenario s) {
  s.model.attention = AttentionKind::kEager;
  return s;
}

class BidirectionalParity : public testing::TestWithParam<ParityCase> {};

TEST_P(BidirectionalParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(BidirectionalParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, BidirectionalParity,
    testing::Values(
        ParityCase{"Ddp", Clipped(Kind(TinyBert(2), kDdp))}, ParityCase{"Dp", Kind(TinyBert(2), kDp)},
        ParityCase{"Zero1", Kind(TinyBert(2), kZero1)}, ParityCase{"Zero3", Kind(TinyBert(2), kZero3)},
        ParityCase{"Fsdp", Kind(TinyBert(2), kFsdp)}, ParityCase{"Tensor", Tensor(TinyBert(), false)},
        ParityCase{"TensorSequence", Clipped(Tensor(TinyBert(), true))},
        ParityCase{"Overlapped", Overlapped(Tensor(TinyBert(), true))},
        ParityCase{"Ring", Context(Kind(TinyEncoder(), kDdp), ContextKind::kRing)},
        ParityCase{"RingFromNorms", Context(Kind(FromNorms(TinyEncoder()), kDdp), ContextKind::kRing)},
        ParityCase{"Gathered", Context(Kind(TinyEncoder(), kDdp), ContextKind::kAllGather)},
        ParityCase{"Ulysses", Context(Kind(TinyEncoder(), kDdp), ContextKind::kUlysses)},
        ParityCase{"Staged", Staged(TinyBert(), "1f1b")}, ParityCase{"Halves", Staged(TinyBert(), "zb_h1")},
        ParityCase{"Chunks", InChunks(Kind(TinyEncoder(2), kFsdp))},
        ParityCase{"Adapted", Adapted(Kind(FromNorms(TinyEncoder(2)), kFsdp))},
        ParityCase{"Recomputed", Recomputed(Dropping(Eager(TinyBert(2))), Recompute::kFull)},
        ParityCase{"SelectiveOp", Recomputed(FromNorms(TinyEncoder(2)), Recompute::kSelectiveOp)},
        ParityCase{"NormsAgain", MadeAgain(Eager(TinyBert(2)),
                                           {RecomputeModule::kCoreAttention, RecomputeModule::kLayerNorm})}),
    NameOf);

TEST(Bidirectional, GradientsAreThoseOfTheLoss) {
  for (const Scenario& s : {TinyBert(), TinyEncoder(), FromNorms(TinyLlama()), Eager(TinyBert()),
                            InChunks(FromNorms(TinyEncoder()))})
    ExpectGradientsOfTheLoss(s);
}

TEST(Bidirectional, MaskedTokensAreLearned) {
  Scenario s = TinyEncoder();
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 3e-3};
  const Trained trained = Train(*CompilePlan(s), 60);
  EXPECT_LT(trained.losses.back(), 0.9 * trained.losses.front());
}

// 0.3 of a sequence are masked, at other places in each; what is masked is to be predicted, and nothing else.
TEST(MaskedData, MasksTheShareOfEachSequence) {
  const Scenario s = TinyEncoder();
  const auto masked = MakeDataSource(s).value();
  Scenario shown = s;
  shown.model.causal = true;
  shown.model.vocab -= 1;  // the last token is the mask
  const auto whole = MakeDataSource(shown).value();
  const auto tokens = static_cast<size_t>(s.model.seq_len);
  std::vector<std::vector<int32_t>> targets_of;
  for (const int64_t sample : {int64_t{0}, int64_t{1}, masked->size()}) {
    std::vector<int32_t> ids(tokens), targets(tokens), all(tokens), next(tokens);
    masked->Tokens(sample, ids, targets);
    whole->Tokens(sample, all, next);
    int64_t count = 0;
    for (size_t t = 0; t < tokens; ++t) {
      const bool is_masked = ids[t] == s.model.vocab - 1;
      EXPECT_EQ(targets[t], is_masked ? all[t] : kNoToken);
      EXPECT_EQ(is_masked || ids[t] == all[t], true);
      count += is_masked ? 1 : 0;
    }
    EXPECT_EQ(count, s.model.MaskedTokens());
    targets_of.push_back(targets);
  }
  EXPECT_NE(targets_of[0], targets_of[1]);
}

TEST(ResidualFromNorm, TheStreamIsWhatNormsReturn) {
  const Plan plan = *CompilePlan(TinyBert());
  const auto forward = [&](const std::string& name) -> const Op& {
    for (const Op& op : plan.roles[0].steady.ops)
      if (op.name == name && op.phase == Phase::kForward) return op;
    ADD_FAILURE() << name;
    return plan.roles[0].steady.ops.front();
  };
  // writes: the sum, its norm, statistics; the first norm has no sum.
  EXPECT_EQ(forward("blocks.0.norm2").reads[0].buffer, forward("blocks.0.norm1").writes[0].buffer);
  EXPECT_EQ(forward("blocks.1.norm1").reads[0].buffer, forward("blocks.0.norm2").writes[1].buffer);
  EXPECT_EQ(forward("norm_f").reads[0].buffer, forward("blocks.1.norm2").writes[1].buffer);
}

TEST(Bidirectional, PeaksAreExact) {
  for (const Scenario& s : {TinyBert(), Kind(TinyBert(2), kFsdp), Tensor(TinyBert(), true),
                            Staged(TinyBert(), "zb_h1"), Recomputed(TinyBert(), Recompute::kFull),
                            Recomputed(TinyBert(), Recompute::kSelective), InChunks(TinyEncoder())})
    ExpectExactPeaks(*CompilePlan(s));
}

}  // namespace
}  // namespace windtunnel
