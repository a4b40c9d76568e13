// The head and its loss in parts (cross_entropy_chunks): the same losses and gradients as in one, with fewer
// logits in memory at a time.
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

Scenario InChunks(Scenario s, int64_t chunks = 4) {
  s.name += "-chunks";
  s.cross_entropy_chunks = chunks;
  return s;
}

Bytes PeakOf(const Plan& plan) {
  return SimulateMemory(plan.roles[0], {.allocator = plan.scenario.allocator})->steady.allocated;
}

class LossChunksParity : public testing::TestWithParam<ParityCase> {};

// On one device in one chunk (OnOneDevice).
TEST_P(LossChunksParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(LossChunksParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Of, LossChunksParity,
    testing::Values(ParityCase{"Alone", InChunks(TinyGpt())},
                    ParityCase{"Tied", InChunks(Tied(TinyGpt()), 8)},
                    ParityCase{"Ddp", InChunks(Clipped(Kind(TinyLlama(2), kDdp)), 2)},
                    ParityCase{"TiedZero1", InChunks(Tied(Kind(TinyGpt(2), kZero1)))},
                    ParityCase{"Zero2", InChunks(Kind(TinyLlama(2), kZero2))},
                    ParityCase{"Fsdp", InChunks(Kind(TinyLlama(2), kFsdp))},
                    ParityCase{"Fsdp1Tied", InChunks(Tied(Kind(TinyGpt(2), kFsdp, 1)))},
                    ParityCase{"Zero3", InChunks(Kind(TinyLlama(2), kZero3))},
                    ParityCase{"Tensor", InChunks(Clipped(Tensor(TinyGpt(), false)))},
                    ParityCase{"TensorSequenceTied", InChunks(Tied(Tensor(TinyGpt(), true)))},
                    ParityCase{"Ring", InChunks(Context(Kind(TinyLlama(1), kDdp), ContextKind::kRing), 2)},
                    ParityCase{"Staged", InChunks(Clipped(Staged(Tied(TinyGpt()), "1f1b")))},
                    ParityCase{"StagedHalves", InChunks(Staged(TinyLlama(), "zb_h1"))},
                    ParityCase{"Adapted", InChunks(Adapted(Kind(TinyLlama(2), kFsdp)))},
                    ParityCase{"Recomputed", InChunks(Recomputed(TinyLlama(), Recompute::kFull))}),
    NameOf);

TEST(LossChunks, PeaksAreExactAndSmaller) {
  for (const Scenario& s :
       {TinyGpt(1), Autocast(TinyLlama(1)), Kind(TinyLlama(2), kFsdp), Tensor(TinyGpt(), true)}) {
    Scenario wide = s;
    wide.model.vocab = 4096;
    wide.model.seq_len = 128;
    wide.batch.micro = 4;
    const Plan whole = *CompilePlan(wide), chunks = *CompilePlan(InChunks(wide, 8));
    ExpectExactPeaks(whole);
    ExpectExactPeaks(chunks);
    EXPECT_LT(PeakOf(chunks), PeakOf(whole)) << s.name;
  }
}

}  // namespace
}  // namespace windtunnel
