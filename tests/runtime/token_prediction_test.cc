// Multi-token prediction (model.mtp). Its gradients are those of the losses that it adds. On several ranks it
// computes what it does on one, whatever else is parallel. Its memory is predicted to the byte.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "runtime/batch_loader.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using enum DataParallelKind;

Scenario Further(int64_t ranks, int64_t modules = 2) {
  Scenario s = TinyLlama(ranks);
  s.name = "tiny-mtp";
  s.model.mtp = TokenPredictionSpec{.layers = modules, .loss_weight = 0.5};
  return s;
}
// Each module's layer has experts, as the last layer has.
Scenario WithExperts(Scenario s, int64_t ranks) {
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 4, .first_dense = 1};
  s.parallel.expert.size = ranks;
  return s;
}
Scenario Untied(Scenario s) {
  s.model.tie_embeddings = false;
  return s;
}
Scenario OnTheHost(Scenario s) {
  s.activation_offload = true;
  return s;
}
Scenario GathersInForward(Scenario s) {
  s.parallel.data.overlap_param_gather = true;
  return s;
}
// One module for all depths.
Scenario Repeated(Scenario s) {
  s.name += "-repeated";
  s.model.mtp->repeated = true;
  return s;
}
Scenario InV(Scenario s) {
  s = Staged(std::move(s), "zb_v");
  s.parallel.pipeline.virtual_stages = 2;
  s.model.layers = 4;
  return s;
}
// The heads are a stage by themselves, and the modules are behind the layers of the one before.
Scenario BeforeHeads(Scenario s, const char* schedule, std::vector<int64_t> balance) {
  s = Staged(Untied(std::move(s)), schedule);
  s.model.layers = std::accumulate(balance.begin(), balance.end(), int64_t{0});
  s.parallel.pipeline.mtp = MtpStage::kBeforeLast;
  const int64_t ranks = std::ssize(balance) == 3 ? 3 : 2;
  s.parallel.pipeline.size = ranks;
  s.parallel.pipeline.virtual_stages = std::ssize(balance) / ranks;
  s.parallel.pipeline.balance = std::move(balance);
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}
Scenario InTurns(Scenario s) {
  s.batch.accumulate = 3;
  s.parallel.expert.overlap = s.parallel.expert.delay_wgrad = true;
  return s;
}

class TokenPredictionParity : public testing::TestWithParam<ParityCase> {};

TEST_P(TokenPredictionParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(TokenPredictionParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, TokenPredictionParity,
    testing::Values(ParityCase{"Ddp", Kind(Further(2), kDdp)}, ParityCase{"UntiedDdp", Untied(Further(2))},
                    ParityCase{"Zero1Clipped", Clipped(Kind(Further(2), kZero1))},
                    ParityCase{"Fsdp", Kind(Further(2), kFsdp)},
                    ParityCase{"Fsdp1Full", Recomputed(Untied(Kind(Further(2), kFsdp, 1)), Recompute::kFull)},
                    ParityCase{"TensorSequenceClipped", Clipped(Tensor(Further(1), true))},
                    ParityCase{"TensorFull", Recomputed(Tensor(Untied(Further(1)), false), Recompute::kFull)},
                    ParityCase{"Ring", Context(Kind(Further(1), kDdp), ContextKind::kRing)},
                    ParityCase{"Ulysses", Context(Kind(Further(1), kDdp), ContextKind::kUlysses)},
                    ParityCase{"Staged", Staged(Further(1), "1f1b")},
                    ParityCase{"UntiedStaged", Clipped(Staged(Untied(Further(1)), "zb_h1"))},
                    ParityCase{"TensorSequenceStaged", Staged(Tensor(Untied(Further(1)), true), "gpipe")},
                    ParityCase{"BothEndsOnOneRank", InV(Untied(Further(1)))},
                    ParityCase{"ExpertsInTurns", InTurns(WithExperts(Kind(Untied(Further(2)), kDdp), 2))},
                    ParityCase{"WithEmbeddingBeforeHeads", BeforeHeads(Further(1), "gpipe", {2, 0})},
                    ParityCase{"BehindALayerBeforeHeads", BeforeHeads(Further(1), "1f1b", {1, 1, 0})},
                    ParityCase{"AloneBeforeHeads", BeforeHeads(Further(2), "interleaved", {2, 1, 0, 0})},
                    ParityCase{"InVBeforeHeads", Clipped(BeforeHeads(Further(1), "zb_v", {1, 1, 1, 0}))},
                    ParityCase{"TensorSequenceBeforeHeads",
                               BeforeHeads(Tensor(Further(1), true), "zb_v", {2, 1, 0, 0})},
                    ParityCase{"ExpertsBeforeHeads",
                               BeforeHeads(WithExperts(Further(2), 2), "interleaved", {1, 1, 1, 0})},
                    ParityCase{"SelectiveOp", Recomputed(Further(2), Recompute::kSelectiveOp)}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    OfOneModule, TokenPredictionParity,
    testing::Values(ParityCase{"Ddp", Clipped(Repeated(Kind(Further(2), kDdp)))},
                    ParityCase{"Zero1Three", Repeated(Kind(Untied(Further(2, 3)), kZero1))},
                    ParityCase{"Zero2Full", Recomputed(Repeated(Kind(Further(2), kZero2)), Recompute::kFull)},
                    ParityCase{"TensorSequence", Clipped(Repeated(Tensor(Further(1), true)))},
                    ParityCase{"DroppingFull", Recomputed(Dropping(Repeated(Further(2))), Recompute::kFull)},
                    ParityCase{"Ring", Repeated(Context(Kind(Further(1), kDdp), ContextKind::kRing))},
                    ParityCase{"Staged", Repeated(Staged(Further(1), "1f1b"))},
                    ParityCase{"ActivationsOnTheHost", OnTheHost(Repeated(Further(2)))},
                    ParityCase{"GathersInForward", GathersInForward(Repeated(Kind(Further(2), kZero1)))},
                    ParityCase{"ZeroBubble", Clipped(Repeated(Staged(Untied(Further(1)), "zb_h1")))},
                    ParityCase{"InV", Repeated(InV(Untied(Further(1))))},
                    ParityCase{"BeforeHeads", Repeated(BeforeHeads(Further(1), "zb_v", {1, 1, 1, 0}))},
                    ParityCase{"ExpertsInTurns",
                               Repeated(InTurns(WithExperts(Kind(Untied(Further(2)), kDdp), 2)))}),
    NameOf);

// One step of SGD along the gradient makes the weighted sum of losses smaller by the learning rate times the
// gradient's square, to first order. The model's own loss, without those of tokens further on, falls by a
// half to a third of that.
TEST(TokenPrediction, GradientsAreThoseOfTheWeightedSumOfLosses) {
  for (Scenario s : {Further(1), Untied(Further(1)), WithExperts(Further(1), 1), Repeated(Further(1))}) {
    s.model.mtp->loss_weight = 2;
    s.batch = {.micro = 4, .accumulate = 2};
    s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 1e-4, .clip_norm = 1e9};
    const Plan plan = *CompilePlan(s);
    WithRanks(plan, [&](RankSession& session, Store&) -> Status {
      Executor& executor = session.executor();
      const auto step = [&]() -> Result<std::vector<double>> {
        WT_ASSIGN_OR_RETURN([[maybe_unused]] auto timeline, executor.Run(executor.role().steady, 3));
        return executor.Losses();
      };
      for (size_t i = 0; i <= executor.role().startup.size(); ++i) WT_RETURN_IF_ERROR(session.Step());
      WT_ASSIGN_OR_RETURN(const std::vector<double> before, step());
      WT_ASSIGN_OR_RETURN(const double norm, executor.GradientNormValue());
      WT_ASSIGN_OR_RETURN(const std::vector<double> after, step());
      EXPECT_EQ(before.size(), 3u);
      const auto sum = [](const std::vector<double>& l) { return l[0] + 2 * (l[1] + l[2]) / 2; };
      const double expected = s.optimizer.lr * norm * norm;
      EXPECT_NEAR(sum(before) - sum(after), expected, 0.03 * expected);
      EXPECT_LT(before[0] - after[0], 0.6 * expected);
      return Ok();
    });
  }
}

TEST(TokenPrediction, PeaksAreExact) {
  ExpectExactPeaks(*CompilePlan(Further(2)));
  ExpectExactPeaks(*CompilePlan(Recomputed(Untied(Kind(Further(2), kFsdp)), Recompute::kFull)));
  ExpectExactPeaks(*CompilePlan(Staged(Untied(Further(2)), "1f1b")));
  ExpectExactPeaks(*CompilePlan(Repeated(Kind(Further(2), kZero1))));
  ExpectExactPeaks(*CompilePlan(Repeated(Staged(Untied(Further(2)), "zb_h1"))));
  ExpectExactPeaks(*CompilePlan(BeforeHeads(Further(1), "1f1b", {2, 0, 0})));
  ExpectExactPeaks(*CompilePlan(BeforeHeads(Kind(Further(2), kZero1), "zb_v", {2, 1, 0, 0})));
  ExpectExactPeaks(*CompilePlan(BeforeHeads(Kind(Further(2), kFsdp), "interleaved", {2, 1, 0, 0})));
  ExpectExactPeaks(*CompilePlan(Staged(Tensor(WithExperts(Further(2), 2), true), "1f1b")));
}

// One module for all depths has a mask of its own at each.
TEST(TokenPrediction, OneModuleDropsOtherElementsAtEachDepth) {
  const Plan plan = *CompilePlan(Dropping(Repeated(Further(1, 3))));
  std::map<uint64_t, std::string> masks;
  for (const Op& op : plan.roles[0].steady.ops) {
    const Dropout* dropout = std::get_if<Dropout>(&op.kind);
    if (dropout == nullptr || dropout->backward || !op.name.starts_with("mtp.")) continue;
    EXPECT_TRUE(masks.emplace(dropout->site.stream, op.name).second) << op.name;
  }
  EXPECT_EQ(masks.size(), 3 * 3u) << "of the embedding, attention and the MLP";
}

// The targets of the k-th module are the model's k tokens further on. Behind the end of a sequence there are
// none, on whichever context rank that end is.
TEST(TokenPrediction, TargetsAreThoseOfTokensFurtherOn) {
  Scenario s = Further(1);
  const int64_t seq = s.model.seq_len;
  auto loader = BatchLoader::Make(s, 0, 1);
  ASSERT_TRUE(loader);
  const auto load = [&](TokenSplit split, int rank) {
    std::vector<std::vector<int32_t>> tensors(
        4, std::vector<int32_t>(static_cast<size_t>(2 * seq / split.ranks)));
    std::vector<TensorRef> writes;
    for (auto& tensor : tensors) writes.push_back({tensor.data(), static_cast<int64_t>(tensor.size())});
    (*loader)->Load(LoadBatch{0, 2, seq / split.ranks, 0, split, /*further=*/2}, 1, rank, writes);
    return tensors;
  };
  const auto whole = load({}, 0);
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t t = 0; t < seq; ++t) {
      const auto at = static_cast<size_t>(row * seq + t);
      if (t + 1 < seq) {
        EXPECT_EQ(whole[0][at + 1], whole[1][at]);
      }
      for (int64_t k : {1, 2})
        EXPECT_EQ(whole[1 + k][at], t + k < seq ? whole[1][at + static_cast<size_t>(k)] : kNoToken);
    }
  }
  const TokenSplit split{2, true};
  for (int rank : {0, 1}) {
    const auto part = load(split, rank);
    for (int64_t t = 0; t < seq / 2; ++t) {
      const auto from = static_cast<size_t>(WholePosition(split, rank, seq / 2, t));
      for (size_t tensor = 0; tensor < 4; ++tensor)
        EXPECT_EQ(part[tensor][static_cast<size_t>(t)], whole[tensor][from])
            << tensor << " " << rank << " " << t;
    }
  }
}

}  // namespace
}  // namespace windtunnel
