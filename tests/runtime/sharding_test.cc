// Sharding changes where tensors are and when they move, not what is computed: every strategy and option of
// ZeRO and FSDP, and every kind of recomputation, gives the losses and the weights of one device with the
// same global batch.
#include <gtest/gtest.h>

#include <functional>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

using Change = std::function<void(Scenario&)>;

Scenario Sharded(Scenario s, DataParallelKind kind, const Change& change = nullptr) {
  s.parallel.data.kind = kind;
  s.parallel.data.bucket_cap_mb = 0.02;  // several buckets, for ZeRO
  if (change) change(s);
  return s;
}
Scenario Fsdp(int64_t ranks, const Change& change = nullptr) {
  return Sharded(TinyGpt(ranks), DataParallelKind::kFsdp, change);
}
Scenario Zero(int64_t ranks, DataParallelKind kind, const Change& change = nullptr) {
  return Sharded(TinyGpt(ranks), kind, change);
}

void Version1(Scenario& s) { s.parallel.data.version = 1; }
void Accumulate(Scenario& s) { s.batch.accumulate = 3; }
void EveryMicroBatch(Scenario& s) {
  s.batch.accumulate = 2;
  s.parallel.data.sync = GradientSync::kEveryMicroBatch;
}
void Clipped(Scenario& s) { s.optimizer.clip_norm = 0.5; }
void NoOverlap(Scenario& s) { s.parallel.data.overlap = false; }
void Tied(Scenario& s) { s.model.tie_embeddings = true; }

Change Both(Change a, Change b) {
  return [a, b](Scenario& s) {
    a(s);
    b(s);
  };
}
Change SetSharding(Sharding sharding, int64_t shard_size = 0) {
  return [=](Scenario& s) {
    s.parallel.data.sharding = sharding;
    s.parallel.data.shard_size = shard_size;
  };
}
Change SetPrefetch(Prefetch prefetch, int64_t forward = 0) {
  return [=](Scenario& s) {
    s.parallel.data.prefetch = prefetch;
    s.parallel.data.forward_prefetch = forward;
  };
}
Change SetOffload(Offload offload) {
  return [=](Scenario& s) { s.parallel.data.offload = offload; };
}
Change As(Framework framework) {
  return [=](Scenario& s) { s.framework = framework; };
}
Change SetRecompute(Recompute recompute) {
  return [=](Scenario& s) { s.recompute = recompute; };
}
Change Wrap(WrapPolicy policy) {
  return [=](Scenario& s) { s.parallel.data.wrap = policy; };
}

// After forward, every `ranks` ranks keep a copy among them.
Change ReshardTo(int64_t ranks) {
  return [=](Scenario& s) { s.parallel.data.reshard_ranks = ranks; };
}

void GatherLate(Scenario& s) { s.parallel.data.overlap_param_gather = true; }

class ShardingParity : public testing::TestWithParam<ParityCase> {};
TEST_P(ShardingParity, LossesAreThoseOfOneDeviceUnderAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(ShardingParity, WeightsAreThoseOfOneDeviceUnderSgd) { ExpectWeightParity(GetParam().scenario); }

constexpr auto kZero1 = DataParallelKind::kZero1, kZero2 = DataParallelKind::kZero2;

INSTANTIATE_TEST_SUITE_P(
    Zero, ShardingParity,
    testing::Values(
        ParityCase{"One", Zero(2, kZero1)}, ParityCase{"Two", Zero(2, kZero2)},
        ParityCase{"OneOfThreeRanks", Zero(3, kZero1)}, ParityCase{"TwoOfThreeRanks", Zero(3, kZero2)},
        ParityCase{"OneMlp", Sharded(TinyMlp(3), kZero1)}, ParityCase{"TwoMlp", Sharded(TinyMlp(3), kZero2)},
        ParityCase{"OneInGroups", Zero(4, kZero1, SetSharding({}, 2))},
        ParityCase{"TwoInGroups", Zero(4, kZero2, SetSharding({}, 2))},
        ParityCase{"OneInGroupsOfOne", Zero(2, kZero1, SetSharding({}, 1))},
        ParityCase{"TwoInGroupsOfOne", Zero(2, kZero2, SetSharding({}, 1))},
        ParityCase{"OneTied", Zero(2, kZero1, Tied)},
        ParityCase{"OneAccumulate", Zero(2, kZero1, Accumulate)},
        ParityCase{"TwoAccumulate", Zero(2, kZero2, Accumulate)},
        ParityCase{"OneEveryMicroBatch", Zero(2, kZero1, EveryMicroBatch)},
        ParityCase{"OneClipped", Zero(2, kZero1, Clipped)},
        ParityCase{"TwoClipped", Zero(3, kZero2, Clipped)},
        ParityCase{"NoOverlap", Zero(2, kZero2, NoOverlap)},
        ParityCase{"OneGatherLate", Zero(2, kZero1, GatherLate)},
        ParityCase{"OneGatherLateClippedAccumulate",
                   Zero(3, kZero1, Both(GatherLate, Both(Clipped, Accumulate)))},
        ParityCase{"OneGatherLateTied", Zero(2, kZero1, Both(GatherLate, Tied))},
        ParityCase{"TwoGatherLate", Zero(2, kZero2, GatherLate)},
        ParityCase{"OneGatherLateOffload",
                   Zero(2, kZero1, Both(GatherLate, SetOffload(Offload::kOptimizer)))},
        ParityCase{"OneOffload", Zero(2, kZero1, SetOffload(Offload::kOptimizer))},
        ParityCase{"TwoOffloadClipped", Zero(2, kZero2, Both(SetOffload(Offload::kOptimizer), Clipped))},
        ParityCase{"OneOfDeepspeedTied", Zero(2, kZero1, Both(As(Framework::kDeepspeed), Tied))},
        ParityCase{"TwoOfDeepspeedInGroups",
                   Zero(4, kZero2, Both(As(Framework::kDeepspeed), SetSharding({}, 2)))},
        ParityCase{"TwoOfDeepspeedAccumulates",
                   Zero(3, kZero2, Both(As(Framework::kDeepspeed), Both(Accumulate, Clipped)))},
        ParityCase{"TwoOfPytorchNoOverlap", Zero(2, kZero2, Both(As(Framework::kPytorch), NoOverlap))},
        ParityCase{"OneOfPytorchAccumulates", Zero(3, kZero1, Both(As(Framework::kPytorch), Accumulate))},
        ParityCase{"OneOfDeepspeedNoOverlapClipped",
                   Zero(2, kZero1, Both(As(Framework::kDeepspeed), Both(NoOverlap, Clipped)))},
        ParityCase{"OneOfMegatronAccumulates",
                   Zero(2, kZero1, Both(As(Framework::kMegatronCore), Accumulate))},
        ParityCase{"OneOfMegatronEveryMicroBatch",
                   Zero(2, kZero1, Both(As(Framework::kMegatron), EveryMicroBatch))}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Fsdp1, ShardingParity,
    testing::Values(
        ParityCase{"FullShard", Fsdp(2, Version1)}, ParityCase{"ThreeRanks", Fsdp(3, Version1)},
        ParityCase{"Mlp", Sharded(TinyMlp(3), DataParallelKind::kFsdp, Version1)},
        ParityCase{"Gemma3Recomputed", Sharded(TinyGemma3(2), DataParallelKind::kFsdp,
                                               Both(Version1, SetRecompute(Recompute::kFull)))},
        ParityCase{"EverySecondLayerRecomputed",
                   Fsdp(2, Both(SetRecompute(Recompute::kFull), [](Scenario& s) { s.recompute_every = 2; }))},
        ParityCase{"ShardGradOp", Fsdp(2, Both(Version1, SetSharding(Sharding::kShardGradOp)))},
        ParityCase{"NoShard", Fsdp(2, Both(Version1, SetSharding(Sharding::kNoShard)))},
        ParityCase{"NoShardEveryMicroBatch",
                   Fsdp(2, Both(EveryMicroBatch, Both(Version1, SetSharding(Sharding::kNoShard))))},
        ParityCase{"Hybrid", Fsdp(4, Both(Version1, SetSharding(Sharding::kHybridShard, 2)))},
        ParityCase{"HybridZero2", Fsdp(4, Both(Version1, SetSharding(Sharding::kHybridShardZero2, 2)))},
        ParityCase{"HybridEveryMicroBatch",
                   Fsdp(4, Both(EveryMicroBatch, Both(Version1, SetSharding(Sharding::kHybridShard, 2))))},
        ParityCase{"Accumulate", Fsdp(2, Both(Version1, Accumulate))},
        ParityCase{"ShardGradOpAccumulate",
                   Fsdp(2, Both(Accumulate, Both(Version1, SetSharding(Sharding::kShardGradOp))))},
        ParityCase{"EveryMicroBatch", Fsdp(2, Both(Version1, EveryMicroBatch))},
        ParityCase{"NoPrefetch", Fsdp(2, Both(Version1, SetPrefetch(Prefetch::kNone)))},
        ParityCase{"BackwardPost", Fsdp(2, Both(Version1, SetPrefetch(Prefetch::kBackwardPost)))},
        ParityCase{"ForwardPrefetch", Fsdp(2, Both(Version1, SetPrefetch(Prefetch::kBackwardPre, 1)))},
        ParityCase{"Clipped", Fsdp(3, Both(Version1, Clipped))},
        ParityCase{"Tied", Fsdp(2, Both(Version1, Tied))},
        ParityCase{"OffloadParameters", Fsdp(2, Both(Version1, SetOffload(Offload::kParam)))},
        ParityCase{"OffloadOptimizer", Fsdp(2, Both(Version1, SetOffload(Offload::kOptimizer)))}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Fsdp2, ShardingParity,
    testing::Values(
        ParityCase{"FullShard", Fsdp(2)}, ParityCase{"ThreeRanks", Fsdp(3)}, ParityCase{"FourRanks", Fsdp(4)},
        ParityCase{"Llama", Sharded(TinyLlama(2), DataParallelKind::kFsdp)},
        ParityCase{"Mlp", Sharded(TinyMlp(3), DataParallelKind::kFsdp)},
        ParityCase{"KeepAfterForward",
                   Fsdp(2, [](Scenario& s) { s.parallel.data.reshard_after_forward = false; })},
        ParityCase{"ReshardToTwo", Fsdp(4, ReshardTo(2))},
        ParityCase{"ReshardToTwoUneven", Sharded(TinyMlp(4), DataParallelKind::kFsdp, ReshardTo(2))},
        ParityCase{"ReshardToTwoAccumulateClipped", Fsdp(4, Both(ReshardTo(2), Both(Accumulate, Clipped)))},
        ParityCase{"ReshardToTwoOffloadParameters", Fsdp(4, Both(ReshardTo(2), SetOffload(Offload::kParam)))},
        ParityCase{"ReshardToTwoForwardPrefetch",
                   Fsdp(4, Both(ReshardTo(2), SetPrefetch(Prefetch::kBackwardPost, 1)))},
        ParityCase{"ReshardToOne", Fsdp(2, ReshardTo(1))}, ParityCase{"ReshardToAll", Fsdp(2, ReshardTo(2))},
        ParityCase{"NoShard", Fsdp(2, SetSharding(Sharding::kNoShard))},
        ParityCase{"Hybrid", Fsdp(4, SetSharding(Sharding::kHybridShard, 2))},
        ParityCase{"HybridClipped", Fsdp(4, Both(SetSharding(Sharding::kHybridShard, 2), Clipped))},
        ParityCase{"Accumulate", Fsdp(2, Accumulate)},
        ParityCase{"EveryMicroBatch", Fsdp(2, EveryMicroBatch)},
        ParityCase{"ForwardPrefetchTwo", Fsdp(2, SetPrefetch(Prefetch::kBackwardPre, 2))},
        ParityCase{"WrapRoot",
                   Fsdp(2, Wrap({.kind = WrapPolicy::Kind::kRoot, .size_bytes = 0, .modules = {}}))},
        ParityCase{"WrapBySize",
                   Fsdp(2, Wrap({.kind = WrapPolicy::Kind::kSize, .size_bytes = 30'000, .modules = {}}))},
        ParityCase{"WrapNested",
                   Fsdp(2, Wrap({.kind = WrapPolicy::Kind::kModules,
                                 .size_bytes = 0,
                                 .modules = {"embedding", "blocks.*", "blocks.*.mlp", "head"}}))},
        ParityCase{"OffloadParameters", Fsdp(2, SetOffload(Offload::kParam))},
        ParityCase{"OffloadParametersEveryMicroBatch",
                   Fsdp(2, Both(EveryMicroBatch, SetOffload(Offload::kParam)))},
        ParityCase{"OffloadOptimizer", Fsdp(2, SetOffload(Offload::kOptimizer))},
        ParityCase{"OneRank", Fsdp(1)}),
    NameOf);

Scenario Flash(Scenario s) {
  s.model.attention = AttentionKind::kFlash;
  return s;
}

INSTANTIATE_TEST_SUITE_P(
    Recompute, ShardingParity,
    testing::Values(
        ParityCase{"Full", Fsdp(2, SetRecompute(Recompute::kFull))},
        ParityCase{"Selective", Fsdp(2, SetRecompute(Recompute::kSelective))},
        ParityCase{"SelectiveFlash", Flash(Fsdp(2, SetRecompute(Recompute::kSelective)))},
        ParityCase{"SelectiveOp", Fsdp(2, SetRecompute(Recompute::kSelectiveOp))},
        ParityCase{"FullLlama",
                   Sharded(TinyLlama(2), DataParallelKind::kFsdp, SetRecompute(Recompute::kFull))},
        ParityCase{"SelectiveOpLlama",
                   Sharded(TinyLlama(2), DataParallelKind::kFsdp, SetRecompute(Recompute::kSelectiveOp))},
        ParityCase{"FullUnderDdp",
                   Sharded(TinyGpt(2), DataParallelKind::kDdp, SetRecompute(Recompute::kFull))},
        ParityCase{"FullNested",
                   Fsdp(2, Both(SetRecompute(Recompute::kFull),
                                Wrap({.kind = WrapPolicy::Kind::kModules,
                                      .size_bytes = 0,
                                      .modules = {"blocks.*", "blocks.*.attn", "blocks.*.mlp"}})))},
        ParityCase{"FullNestedReshardToTwo",
                   Fsdp(4, Both(Both(SetRecompute(Recompute::kFull), ReshardTo(2)),
                                Wrap({.kind = WrapPolicy::Kind::kModules,
                                      .size_bytes = 0,
                                      .modules = {"blocks.*", "blocks.*.attn", "blocks.*.mlp"}})))},
        ParityCase{"WholeBlockAgain", Fsdp(2, Both(SetRecompute(Recompute::kFull),
                                                   [](Scenario& s) { s.framework = Framework::kPytorch; }))}),
    NameOf);

// ---- 16-bit parameters ------------------------------------------------------------------------------------

// Root of the mean squared relative difference of losses over the steps.
double Distance(const Trained& a, const Trained& b) {
  double sum = 0;
  for (size_t step = 0; step < a.losses.size(); ++step) {
    const double difference = a.losses[step] / b.losses[step] - 1;
    sum += difference * difference;
  }
  return std::sqrt(sum / static_cast<double>(a.losses.size()));
}

Scenario InBf16(Scenario s, Precision reduce) {
  s.precision = {.param = Precision::kBf16, .compute = Precision::kBf16, .reduce = reduce};
  s.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 1e-3, .weight_decay = 0.01};
  return s;
}

class Bf16 : public testing::TestWithParam<ParityCase> {};

// One device's runs that differ in the order of their sums: the batch whole or in micro-batches, attention
// eager or by blocks.
std::vector<Trained> OneDevicesRuns(const Scenario& s) {
  std::vector<Trained> runs;
  const bool is_mlp = s.model.kind == ModelKind::kMlp;
  for (int64_t micro_batches : {1, 2, 4, 5, 8}) {
    for (AttentionKind attention : {AttentionKind::kEager, AttentionKind::kFlash}) {
      Scenario one = OnOneDevice(s);
      const int64_t samples = one.batch.micro * one.batch.accumulate;
      if (samples % micro_batches != 0 || (is_mlp && attention == AttentionKind::kFlash)) continue;
      one.batch = {samples / micro_batches, micro_batches};
      one.model.attention = attention;
      runs.push_back(Train(*CompilePlan(one), kParitySteps));
    }
  }
  return runs;
}

// Roundings differ with the order of sums, so there is no one right answer. A sharded run must be as close to
// one of the runs on one device as those are to each other.
TEST_P(Bf16, LossesAreWithinTheSpreadOfOneDevicesRuns) {
  const Scenario s = GetParam().scenario;
  const std::vector<Trained> alone = OneDevicesRuns(s);
  const Trained sharded = Train(*CompilePlan(s), kParitySteps);
  double spread = 0, nearest = INFINITY;
  for (const Trained& a : alone) {
    nearest = std::min(nearest, Distance(sharded, a));
    for (const Trained& b : alone) spread = std::max(spread, Distance(a, b));
  }
  EXPECT_LE(nearest, spread);
  EXPECT_LT(spread, 1e-3);  // bf16 keeps 8 bits; the loss is a mean of many
  EXPECT_LT(sharded.losses.back(), sharded.losses.front());
}

constexpr auto kFp32 = Precision::kFp32, kBf16 = Precision::kBf16;

INSTANTIATE_TEST_SUITE_P(
    Parity, Bf16,
    testing::Values(
        ParityCase{"Fsdp1", InBf16(Fsdp(2, Version1), kFp32)}, ParityCase{"Fsdp2", InBf16(Fsdp(2), kFp32)},
        ParityCase{"Fsdp1ReducedInBf16", InBf16(Fsdp(2, Version1), kBf16)},
        ParityCase{"Fsdp2ReducedInBf16", InBf16(Fsdp(2), kBf16)},
        ParityCase{"Fsdp2Llama", InBf16(Sharded(TinyLlama(2), DataParallelKind::kFsdp), kFp32)},
        ParityCase{"Fsdp2Mlp", InBf16(Sharded(TinyMlp(2), DataParallelKind::kFsdp), kFp32)},
        ParityCase{"Fsdp2Recompute", InBf16(Fsdp(2, SetRecompute(Recompute::kFull)), kFp32)},
        ParityCase{"Fsdp1Offload", InBf16(Fsdp(2, Both(Version1, SetOffload(Offload::kParam))), kFp32)},
        ParityCase{"Hybrid", InBf16(Fsdp(4, SetSharding(Sharding::kHybridShard, 2)), kFp32)},
        ParityCase{"NoShard", InBf16(Fsdp(2, Both(Version1, SetSharding(Sharding::kNoShard))), kFp32)},
        ParityCase{"Zero1", InBf16(Zero(2, kZero1), kFp32)},
        ParityCase{"Zero2", InBf16(Zero(2, kZero2), kFp32)},
        ParityCase{"Zero1ReducedInBf16", InBf16(Zero(2, kZero1), kBf16)},
        ParityCase{"Zero1Accumulate", InBf16(Zero(2, kZero1, Accumulate), kFp32)},
        ParityCase{"Zero2OfDeepspeed",
                   InBf16(Zero(2, kZero2, Both(As(Framework::kDeepspeed), Accumulate)), kBf16)},
        ParityCase{"Zero2Offload", InBf16(Zero(2, kZero2, SetOffload(Offload::kOptimizer)), kFp32)},
        ParityCase{"Ddp", InBf16(TinyGpt(2), kFp32)},
        ParityCase{"DdpReducedInBf16", InBf16(TinyGpt(2), kBf16)}),
    NameOf);

}  // namespace
}  // namespace windtunnel
