// Context parallelism changes which rank has which tokens, not what is computed. However ranks exchange keys
// and values, alone and with every other kind of parallelism, it gives the losses and the weights of one
// device with the same global batch.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

constexpr auto kRing = ContextKind::kRing, kAllGather = ContextKind::kAllGather,
               kUlysses = ContextKind::kUlysses;

Scenario SplitTokens(Scenario s, ContextKind kind, int64_t ranks = 2) {
  s = Context(std::move(s), kind, ranks);
  s.parallel.data.bucket_cap_mb = 0.02;  // several buckets
  return s;
}
Scenario OneSequence(Scenario s) {
  s.batch.micro = 1;
  return s;
}

class ContextParity : public testing::TestWithParam<ParityCase> {};

TEST_P(ContextParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(ContextParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

INSTANTIATE_TEST_SUITE_P(
    Alone, ContextParity,
    testing::Values(
        ParityCase{"RingGpt", SplitTokens(TinyGpt(), kRing)},
        ParityCase{"RingLlama", SplitTokens(TinyLlama(), kRing)},
        ParityCase{"RingQwen3", SplitTokens(TinyQwen3(), kRing)},
        ParityCase{"UlyssesQwen3SelectiveOp",
                   Recomputed(SplitTokens(TinyQwen3(), kUlysses), Recompute::kSelectiveOp)},
        ParityCase{"RingGptTiedClipped", Clipped(Tied(SplitTokens(TinyGpt(), kRing)))},
        ParityCase{"RingLlama4", SplitTokens(TinyLlama(), kRing, 4)},
        ParityCase{"AllGatherGpt", SplitTokens(TinyGpt(), kAllGather)},
        ParityCase{"AllGatherLlama", SplitTokens(TinyLlama(), kAllGather)},
        ParityCase{"AllGatherGpt4Clipped", Clipped(SplitTokens(TinyGpt(), kAllGather, 4))},
        ParityCase{"UlyssesGpt", SplitTokens(TinyGpt(), kUlysses)},
        ParityCase{"UlyssesLlama", SplitTokens(TinyLlama(), kUlysses)},
        ParityCase{"RingRotatedInPart", SplitTokens(RotatedInPart(TinyLlama()), kRing)},
        ParityCase{"UlyssesWindows", Windowed(SplitTokens(TinyLlama(), kUlysses))},
        ParityCase{"AllGatherWindows", Windowed(SplitTokens(TinyLlama(), kAllGather))},
        ParityCase{"AllGatherWindows4Clipped", Clipped(Windowed(SplitTokens(TinyGpt(), kAllGather, 4)))},
        ParityCase{"UlyssesOneSequence", OneSequence(SplitTokens(TinyLlama(), kUlysses))},
        ParityCase{"UlyssesGpt4Clipped", Clipped(FourHeads(SplitTokens(TinyGpt(), kUlysses, 4)))}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Recompute, ContextParity,
    testing::Values(
        ParityCase{"RingFull", Recomputed(SplitTokens(TinyLlama(), kRing), Recompute::kFull)},
        ParityCase{"RingSelective", Recomputed(SplitTokens(TinyGpt(), kRing), Recompute::kSelective)},
        ParityCase{"RingSelectiveOp", Recomputed(SplitTokens(TinyGpt(), kRing), Recompute::kSelectiveOp)},
        ParityCase{"AllGatherSelective",
                   Recomputed(SplitTokens(TinyLlama(), kAllGather), Recompute::kSelective)},
        ParityCase{"UlyssesFull", Recomputed(SplitTokens(TinyGpt(), kUlysses), Recompute::kFull)},
        ParityCase{"UlyssesSelective",
                   Recomputed(SplitTokens(TinyLlama(), kUlysses), Recompute::kSelective)}),
    NameOf);

constexpr auto kDdp = DataParallelKind::kDdp, kZero1 = DataParallelKind::kZero1,
               kFsdp = DataParallelKind::kFsdp;

// ZeRO and FSDP shard over data x context ranks.
INSTANTIATE_TEST_SUITE_P(
    WithOthers, ContextParity,
    testing::Values(
        ParityCase{"RingDdp", Kind(SplitTokens(TinyGpt(2), kRing), kDdp)},
        ParityCase{"RingZero1Clipped", Clipped(Kind(SplitTokens(TinyGpt(2), kRing), kZero1))},
        ParityCase{"RingFsdp1", Kind(SplitTokens(TinyLlama(), kRing), kFsdp, 1)},
        ParityCase{"AllGatherFsdp2Clipped", Clipped(Kind(SplitTokens(TinyLlama(2), kAllGather), kFsdp))},
        ParityCase{"UlyssesFsdp2", Kind(SplitTokens(TinyLlama(2), kUlysses), kFsdp)},
        ParityCase{"RingTensor", Tensor(SplitTokens(TinyGpt(), kRing), false)},
        ParityCase{"RingTensorSequenceClipped", Clipped(Tensor(SplitTokens(TinyLlama(), kRing), true))},
        ParityCase{"UlyssesTensorSequence", Tensor(FourHeads(SplitTokens(TinyGpt(), kUlysses)), true)},
        ParityCase{"RingPipeline", Clipped(Staged(Tied(SplitTokens(TinyGpt(), kRing)), "1f1b"))},
        ParityCase{"AllGatherZeroBubble", Staged(SplitTokens(TinyLlama(), kAllGather), "zb_h1")}),
    NameOf);

TEST(ContextParallelMemory, IsPredictedToTheByte) {
  for (ContextKind kind : {kRing, kAllGather, kUlysses}) {
    SCOPED_TRACE(static_cast<int>(kind));
    ExpectExactPeaks(*CompilePlan(SplitTokens(TinyLlama(), kind)));
    ExpectExactPeaks(*CompilePlan(Kind(SplitTokens(TinyGpt(), kind), kFsdp)));
  }
}

TEST(ContextParallelBf16, TrainsAlongOneDevice) {
  for (ContextKind kind : {kRing, kAllGather, kUlysses}) {
    SCOPED_TRACE(static_cast<int>(kind));
    ExpectTrainsAlongOneDevice(SplitTokens(TinyLlama(), kind), 3e-3);
  }
}

}  // namespace
}  // namespace windtunnel
