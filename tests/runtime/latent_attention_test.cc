// Latent attention on several ranks computes what it does on one, whatever else is parallel. Its peak memory
// is predicted to the byte.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using enum RecomputeModule;

// Heads of 12 columns, four of which are rotated, and values of six columns.
Scenario Latent(int64_t ranks, int64_t q_rank = 10) {
  Scenario s = TinyLlama(ranks);
  s.name = "tiny-deepseek";
  s.model.kv_heads = s.model.heads;
  s.model.head_dim = 12;
  s.model.latent_attention =
      LatentAttentionSpec{.q_rank = q_rank, .kv_rank = 14, .rope_dim = 4, .value_dim = 6};
  return s;
}
Scenario Eager(Scenario s) {
  s.model.attention = AttentionKind::kEager;
  return s;
}
Scenario OverContext(Scenario s, ContextKind kind) {
  s.parallel.context = {.size = 2, .kind = kind};
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}

class LatentParity : public testing::TestWithParam<ParityCase> {};

TEST_P(LatentParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(LatentParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Alone, LatentParity,
    testing::Values(
        ParityCase{"Ddp", Kind(Latent(2), DataParallelKind::kDdp)},
        ParityCase{"QueriesOfHiddenState", Latent(2, /*q_rank=*/0)}, ParityCase{"Eager", Eager(Latent(2))},
        ParityCase{"FsdpClipped", Clipped(Kind(Latent(2), DataParallelKind::kFsdp))},
        ParityCase{"Tensor", Tensor(Latent(1), false)},
        ParityCase{"TensorClipped", Clipped(Tensor(Latent(1), false))},
        ParityCase{"TensorSequenceClipped", Clipped(Tensor(Latent(1), true))},
        ParityCase{"TensorSequenceQueriesOfHiddenState", Tensor(Latent(1, 0), true)},
        ParityCase{"TensorSequenceFull", Recomputed(Tensor(Latent(2), true), Recompute::kFull)},
        ParityCase{"Selective", Recomputed(Latent(2), Recompute::kSelective)},
        ParityCase{"UpAgain", MadeAgain(Latent(2), {kLatentUp})},
        ParityCase{"UpOfHiddenStateAgain", MadeAgain(Latent(2, 0), {kLatentUp, kCoreAttention})},
        ParityCase{"TensorSequenceUpAndNormsAgain",
                   MadeAgain(Tensor(Latent(1), true), {kLatentUp, kLayerNorm, kMlp})},
        ParityCase{"FsdpUpAndNormsAgain", MadeAgain(Kind(Latent(2), DataParallelKind::kFsdp),
                                                    {kLatentUp, kCoreAttention, kLayerNorm})},
        ParityCase{"ZeroBubbleUpAgain", Staged(MadeAgain(Latent(1), {kLatentUp, kLayerNorm}), "zb_h1")},
        ParityCase{"SelectiveOp", Recomputed(Latent(2), Recompute::kSelectiveOp)},
        ParityCase{"SelectiveOpOfHiddenStateEager", Recomputed(Eager(Latent(2, 0)), Recompute::kSelectiveOp)},
        ParityCase{"TensorSequenceSelectiveOp", Recomputed(Tensor(Latent(1), true), Recompute::kSelectiveOp)},
        ParityCase{"TensorSequenceSelectiveOpOfHiddenState",
                   Recomputed(Tensor(Latent(1, 0), true), Recompute::kSelectiveOp)},
        ParityCase{"Ulysses", OverContext(Latent(1), ContextKind::kUlysses)},
        ParityCase{"Ring", OverContext(Latent(1), ContextKind::kRing)},
        ParityCase{"RingClippedFull",
                   Clipped(Recomputed(OverContext(Latent(2), ContextKind::kRing), Recompute::kFull))},
        ParityCase{"AllGather", OverContext(Latent(1, 0), ContextKind::kAllGather)},
        ParityCase{"ZeroBubbleTensorSequence", Staged(Tensor(Latent(1), true), "zb_h1")}),
    NameOf);

TEST(LatentAttention, PeaksAreExact) {
  ExpectExactPeaks(*CompilePlan(Latent(2)));
  ExpectExactPeaks(*CompilePlan(Tensor(Kind(Latent(2), DataParallelKind::kFsdp), true)));
  ExpectExactPeaks(*CompilePlan(Recomputed(Latent(2, 0), Recompute::kFull)));
  ExpectExactPeaks(*CompilePlan(Recomputed(Latent(2), Recompute::kSelectiveOp)));
  ExpectExactPeaks(*CompilePlan(Recomputed(Tensor(Latent(1, 0), true), Recompute::kSelectiveOp)));
  ExpectExactPeaks(*CompilePlan(OverContext(Latent(1), ContextKind::kRing)));
  ExpectExactPeaks(*CompilePlan(MadeAgain(Tensor(Latent(2), true), {kLatentUp, kLayerNorm, kMlp})));
}

}  // namespace
}  // namespace windtunnel
