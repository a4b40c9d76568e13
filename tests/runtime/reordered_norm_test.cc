// Blocks with norms behind attention and the MLP instead of before them, and of all heads of queries and keys
// together (OLMo 2: model.pre_norm, qk_norm_over): one device's losses and weights in every strategy, peaks
// to the byte.
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

// Of layer norms and without norms of heads, which tensor ranks can share.
Scenario Reordered(Scenario s) {
  s.model.pre_norm = false;
  s.model.post_norm = true;
  return s;
}
Scenario Further(Scenario s) {
  s.model.mtp = TokenPredictionSpec{.layers = 1};
  return s;
}
// As OLMoE: norms before each half, and of all heads together.
Scenario TinyOlmoe(int64_t ranks) {
  Scenario s = TinyOlmo(ranks);
  s.model.pre_norm = true;
  s.model.post_norm = false;
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 2};
  return s;
}

class ReorderedNormParity : public testing::TestWithParam<ParityCase> {};

TEST_P(ReorderedNormParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(ReorderedNormParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, ReorderedNormParity,
    testing::Values(
        ParityCase{"Ddp", Clipped(TinyOlmo(2))}, ParityCase{"Zero1", Kind(TinyOlmo(2), kZero1)},
        ParityCase{"Fsdp", Kind(TinyOlmo(2), kFsdp)}, ParityCase{"Fsdp1", Kind(TinyOlmo(2), kFsdp, 1)},
        ParityCase{"Zero3", Kind(TinyOlmo(2), kZero3)}, ParityCase{"Olmoe", TinyOlmoe(2)},
        ParityCase{"Tensor", Clipped(Tensor(Reordered(TinyGpt()), false))},
        ParityCase{"TensorSequence", Tensor(Reordered(TinyLlama()), true)},
        ParityCase{"Overlapped", Overlapped(Tensor(Reordered(TinyLlama()), true))},
        ParityCase{"Ring", Context(Kind(TinyOlmo(), kDdp), ContextKind::kRing)},
        ParityCase{"Ulysses", Context(Kind(TinyOlmo(), kDdp), ContextKind::kUlysses)},
        ParityCase{"Staged", Staged(TinyOlmo(), "1f1b")}, ParityCase{"Halves", Staged(TinyOlmo(), "zb_h1")},
        ParityCase{"Further", Further(TinyOlmo(2))}, ParityCase{"Adapted", Adapted(Kind(TinyOlmo(2), kFsdp))},
        ParityCase{"AdaptedDown", Adapted(TinyOlmo(2), {LoraTarget::kDown})},
        ParityCase{"Recomputed", Recomputed(Dropping(TinyOlmo(2)), Recompute::kFull)},
        ParityCase{"MlpAgain",
                   MadeAgain(TinyOlmo(2), {RecomputeModule::kCoreAttention, RecomputeModule::kMlp})}),
    NameOf);

TEST(ReorderedNorms, PeaksAreExact) {
  for (const Scenario& s :
       {TinyOlmo(), TinyOlmoe(1), Kind(TinyOlmo(2), kFsdp), Tensor(Reordered(TinyGpt()), true),
        Recomputed(TinyOlmo(), Recompute::kFull), Recomputed(TinyOlmo(), Recompute::kSelective),
        Adapted(TinyOlmo(), {LoraTarget::kDown})})
    ExpectExactPeaks(*CompilePlan(s));
}

}  // namespace
}  // namespace windtunnel
