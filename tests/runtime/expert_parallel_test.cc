// Expert parallelism changes which rank has which experts, not what is computed. Alone and with other kinds
// of parallelism, a mixture of experts trains to the losses and the weights of one device with the same
// global batch if no token is dropped. It also trains to those of the same ranks with all experts on each,
// even if tokens are dropped, unless tensor ranks split tokens: then each of them has room for its own.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/exact_peaks.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

// Four experts, two per token. Each has room for all tokens unless `capacity_factor` says otherwise.
Scenario Experts(Scenario s, int64_t expert_ranks, double capacity_factor = 2) {
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = capacity_factor};
  s.parallel.expert.size = expert_ranks;
  s.parallel.data.bucket_cap_mb = 0.02;  // several buckets
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}
Scenario Sharded(Scenario s, Sharding sharding, int64_t shard_size = 0, int version = 2) {
  s = Kind(s, DataParallelKind::kFsdp, version);
  s.parallel.data.sharding = sharding;
  s.parallel.data.shard_size = shard_size;
  s.parallel.data.reshard_after_forward =
      sharding == Sharding::kFullShard || sharding == Sharding::kHybridShard;
  return s;
}
Scenario InShards(Scenario s, int64_t shard_size) {
  s.parallel.data.shard_size = shard_size;
  return s;
}
Scenario TopOne(Scenario s) {
  s.model.experts->top_k = 1;
  s.model.experts->capacity_factor = 4;
  return s;
}
Scenario Accumulated(Scenario s) {
  s.batch.accumulate = 2;
  return s;
}

// The first of the two layers has a plain MLP, of another width.
Scenario Mixed(Scenario s) {
  s.model.experts->first_dense = 1;
  s.model.experts->dense_ffn = 2 * s.model.ffn;
  return s;
}

Scenario Biased(Scenario s) {
  s.model.experts->bias = true;
  return s;
}

// Adds a shared expert, through which all tokens go.
Scenario BesideOne(Scenario s) {
  s.model.experts->shared_ffn = 48;
  return s;
}

class ExpertParity : public testing::TestWithParam<ParityCase> {};

TEST_P(ExpertParity, LossesWithAdamW) { ExpectLossParity(GetParam().scenario); }
TEST_P(ExpertParity, WeightsWithSgd) { ExpectWeightParity(GetParam().scenario); }

constexpr auto kDdp = DataParallelKind::kDdp, kZero1 = DataParallelKind::kZero1,
               kZero2 = DataParallelKind::kZero2, kFsdp = DataParallelKind::kFsdp;

INSTANTIATE_TEST_SUITE_P(AllOnEachRank, ExpertParity,
                         testing::Values(ParityCase{"Ddp", Kind(Experts(TinyGpt(2), 1), kDdp)},
                                         ParityCase{"Zero1", Kind(Experts(TinyLlama(2), 1), kZero1)},
                                         ParityCase{"Fsdp2Clipped",
                                                    Clipped(Kind(Experts(TinyLlama(2), 1), kFsdp))}),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(
    Shared, ExpertParity,
    testing::Values(ParityCase{"Gpt", Experts(TinyGpt(2), 2)}, ParityCase{"Llama", Experts(TinyLlama(2), 2)},
                    ParityCase{"LlamaClipped", Clipped(Experts(TinyLlama(2), 2))},
                    ParityCase{"TopOne", TopOne(Experts(TinyLlama(2), 2))},
                    ParityCase{"Biased", Biased(Experts(TinyLlama(2), 2))},
                    ParityCase{"BiasedAccumulated", Accumulated(Biased(Experts(TinyGpt(2), 2)))},
                    ParityCase{"FourRanks", Experts(TinyLlama(4), 4)},
                    ParityCase{"TwoByTwoClipped", Clipped(Experts(TinyLlama(4), 2))},
                    ParityCase{"Accumulated", Accumulated(Experts(TinyGpt(2), 2))},
                    ParityCase{"Full", Recomputed(Experts(TinyLlama(2), 2), Recompute::kFull)},
                    ParityCase{"SelectiveOp", Recomputed(Experts(TinyLlama(2), 2), Recompute::kSelectiveOp)}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    BehindPlainLayers, ExpertParity,
    testing::Values(
        ParityCase{"Gpt", Mixed(Experts(TinyGpt(2), 2))},
        ParityCase{"LlamaClipped", Clipped(Mixed(Experts(TinyLlama(2), 2)))},
        ParityCase{"Fsdp", Mixed(Sharded(Experts(TinyLlama(4), 2), Sharding::kFullShard))},
        ParityCase{"Zero1TensorSequence", Mixed(Tensor(Kind(Experts(TinyLlama(2), 2), kZero1), true))},
        ParityCase{"SelectiveOp", Recomputed(Mixed(Experts(TinyLlama(2), 2)), Recompute::kSelectiveOp)},
        ParityCase{"Pipeline", Clipped(Mixed(Staged(Experts(TinyLlama(2), 2), "1f1b")))}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    WithOthers, ExpertParity,
    testing::Values(
        ParityCase{"Zero1Clipped", Clipped(Kind(Experts(TinyLlama(4), 2), kZero1))},
        ParityCase{"Zero1AllExpertRanks", Kind(Experts(TinyLlama(2), 2), kZero1)},
        ParityCase{"Zero2Clipped", Clipped(Kind(Experts(TinyGpt(4), 2), kZero2))},
        ParityCase{"Tensor", Tensor(Experts(TinyGpt(2), 2), false)},
        ParityCase{"TensorSequenceClipped", Clipped(Tensor(Experts(TinyLlama(2), 2), true))},
        ParityCase{"TensorSequenceAlone", Tensor(Kind(Experts(TinyLlama(1), 1), kDdp), true)},
        ParityCase{"TensorSequenceZero1Clipped",
                   Clipped(Tensor(Kind(Experts(TinyLlama(4), 2), kZero1), true))},
        ParityCase{"TensorSequenceSelectiveOp",
                   Recomputed(Tensor(Experts(TinyLlama(2), 2), true), Recompute::kSelectiveOp)},
        ParityCase{"TensorSequenceRecomputed",
                   Recomputed(Tensor(Experts(TinyGpt(2), 2), true), Recompute::kFull)},
        ParityCase{"TensorSequenceZeroBubble", Staged(Tensor(Experts(TinyLlama(2), 2), true), "zb_h1")},
        ParityCase{"OverContextRanks", Context(Kind(Experts(TinyLlama(), 1), kDdp), ContextKind::kRing)},
        ParityCase{"Pipeline", Clipped(Staged(Experts(TinyLlama(2), 2), "1f1b"))},
        ParityCase{"ZeroBubble", Staged(Experts(TinyGpt(2), 2), "zb_h1")}),
    NameOf);

// Tensor ranks have whole experts of their own. An expert group consists of the two tensor ranks and some of
// the data axis.
Scenario OverTensor(Scenario s, int64_t expert_ranks) {
  s = Tensor(s, /*sequence=*/true);
  s.parallel.expert = {.size = expert_ranks, .tensor = 1};
  return s;
}

INSTANTIATE_TEST_SUITE_P(
    OverTensorRanks, ExpertParity,
    testing::Values(
        ParityCase{"AllOfThem", OverTensor(Experts(TinyLlama(1), 1), 2)},
        ParityCase{"AllOfThemClipped", Clipped(OverTensor(Kind(Experts(TinyLlama(2), 1), kDdp), 2))},
        ParityCase{"AndDataRanksClipped", Clipped(OverTensor(Kind(Experts(TinyLlama(2), 1), kDdp), 4))},
        ParityCase{"AndSomeDataRanksClipped", Clipped(OverTensor(Kind(Experts(TinyGpt(4), 1), kDdp), 4))},
        ParityCase{"Zero1Clipped", Clipped(OverTensor(Kind(Experts(TinyLlama(4), 1), kZero1), 4))},
        ParityCase{"BiasedClipped", Clipped(OverTensor(Biased(Kind(Experts(TinyLlama(2), 1), kZero1)), 4))},
        ParityCase{"Zero1OfAllClipped", Clipped(OverTensor(Kind(Experts(TinyLlama(2), 1), kZero1), 2))},
        ParityCase{"FsdpClipped",
                   Clipped(OverTensor(Sharded(Experts(TinyLlama(4), 1), Sharding::kFullShard), 4))},
        ParityCase{"FsdpOfAll", OverTensor(Sharded(Experts(TinyLlama(2), 1), Sharding::kFullShard), 2)},
        ParityCase{"SelectiveOp",
                   Recomputed(OverTensor(Experts(TinyLlama(2), 1), 4), Recompute::kSelectiveOp)},
        ParityCase{"Full", Recomputed(OverTensor(Experts(TinyLlama(2), 1), 4), Recompute::kFull)},
        ParityCase{"BehindPlainLayers", Mixed(OverTensor(Experts(TinyLlama(2), 1), 4))},
        ParityCase{"ZeroBubbleClipped", Clipped(Staged(OverTensor(Experts(TinyLlama(2), 1), 4), "zb_h1"))}),
    NameOf);

Scenario InGroups(Scenario s) {
  s.model.experts->groups = 2;
  s.model.experts->top_k_groups = 1;
  return s;
}
INSTANTIATE_TEST_SUITE_P(OfFewGroups, ExpertParity,
                         testing::Values(ParityCase{"Gpt", InGroups(Experts(TinyGpt(2), 2))},
                                         ParityCase{"OverTensorRanks",
                                                    InGroups(OverTensor(Experts(TinyLlama(2), 1), 4))}),
                         NameOf);

Scenario Wrapped(Scenario s, WrapPolicy::Kind kind, int64_t size_bytes = 0,
                 std::vector<std::string> modules = {}) {
  s.parallel.data.wrap = {kind, size_bytes, std::move(modules)};
  return s;
}
Scenario Offloaded(Scenario s, Offload offload) {
  s.parallel.data.offload = offload;
  return s;
}
Scenario EveryMicroBatch(Scenario s) {
  s = Accumulated(s);
  s.parallel.data.sync = GradientSync::kEveryMicroBatch;
  return s;
}
Scenario Prefetching(Scenario s, Prefetch prefetch, int64_t forward) {
  s.parallel.data.prefetch = prefetch;
  s.parallel.data.forward_prefetch = forward;
  return s;
}
constexpr auto kFull = Sharding::kFullShard, kHybrid = Sharding::kHybridShard;

INSTANTIATE_TEST_SUITE_P(
    WithFsdp, ExpertParity,
    testing::Values(
        ParityCase{"ExpertsWhole", Sharded(Experts(TinyLlama(2), 2), kFull)},
        ParityCase{"ExpertsWhole1", Sharded(Experts(TinyLlama(2), 2), kFull, 0, 1)},
        ParityCase{"FullShardClipped", Clipped(Sharded(Experts(TinyLlama(4), 2), kFull))},
        ParityCase{"BiasedFullShard", Biased(Sharded(Experts(TinyLlama(4), 2), kFull))},
        ParityCase{"FullShard1Clipped", Clipped(Sharded(Experts(TinyGpt(4), 2), kFull, 0, 1))},
        ParityCase{"ShardGradOp", Sharded(Experts(TinyGpt(4), 2), Sharding::kShardGradOp)},
        ParityCase{"NoShardClipped", Clipped(Sharded(Experts(TinyLlama(4), 2), Sharding::kNoShard, 0, 1))},
        // Shard groups of two: each with all experts, which are whole then; and each with half of the
        // experts.
        ParityCase{"HybridClipped", Clipped(Sharded(Experts(TinyLlama(4), 2), kHybrid, 2))},
        ParityCase{"HybridHasHalfTheExpertsClipped", Clipped(Sharded(Experts(TinyLlama(4), 4), kHybrid, 2))},
        ParityCase{"HybridZero2", Sharded(Experts(TinyGpt(4), 2), Sharding::kHybridShardZero2, 2, 1)},
        ParityCase{"Root", Wrapped(Sharded(Experts(TinyLlama(4), 2), kFull), WrapPolicy::Kind::kRoot)},
        ParityCase{"BySize",
                   Wrapped(Sharded(Experts(TinyGpt(4), 2), kFull), WrapPolicy::Kind::kSize, 16'384)},
        ParityCase{"ByName", Wrapped(Sharded(Experts(TinyLlama(4), 2), kFull), WrapPolicy::Kind::kModules, 0,
                                     {"blocks.*.mlp", "head"})},
        ParityCase{"PrefetchPost",
                   Prefetching(Sharded(Experts(TinyLlama(4), 2), kFull), Prefetch::kBackwardPost, 2)},
        ParityCase{"Accumulated", Accumulated(Sharded(Experts(TinyGpt(4), 2), kFull))},
        ParityCase{"EveryMicroBatch", EveryMicroBatch(Sharded(Experts(TinyLlama(4), 2), kFull))},
        ParityCase{"Recomputed", Recomputed(Sharded(Experts(TinyLlama(4), 2), kFull), Recompute::kFull)},
        ParityCase{"OffloadParam", Offloaded(Sharded(Experts(TinyLlama(4), 2), kFull), Offload::kParam)},
        ParityCase{"OffloadOptimizer",
                   Offloaded(Sharded(Experts(TinyLlama(2), 2), kFull), Offload::kOptimizer)},
        ParityCase{"TensorSequenceClipped", Clipped(Tensor(Sharded(Experts(TinyLlama(2), 2), kFull), true))},
        ParityCase{"Context", Context(Sharded(Experts(TinyLlama(2), 2), kFull), ContextKind::kRing)},
        ParityCase{"PipelineClipped", Clipped(Staged(Sharded(Experts(TinyLlama(2), 2), kFull), "1f1b"))},
        ParityCase{"ZeroBubble", Staged(Sharded(Experts(TinyLlama(4), 2), kFull), "zb_h1")}),
    NameOf);

// Micro-batches that hide each other's all-to-all.
Scenario InTurns(Scenario s, bool delay_wgrad = false, int64_t micro_batches = 3) {
  s.parallel.expert.overlap = true;
  s.parallel.expert.delay_wgrad = delay_wgrad;
  s.batch.accumulate = micro_batches;
  return s;
}
Scenario TensorOverlapped(Scenario s) {
  s = Tensor(std::move(s), /*sequence=*/true);
  s.parallel.tensor.overlap = true;
  return s;
}
Scenario InStages(Scenario s, const char* schedule, bool delay_wgrad) {
  s = Staged(std::move(s), schedule);
  s.model.layers = 4;
  s.parallel.pipeline.virtual_stages = 2;
  return InTurns(std::move(s), delay_wgrad, 4);
}

INSTANTIATE_TEST_SUITE_P(
    InTurns, ExpertParity,
    testing::Values(
        ParityCase{"Gpt", InTurns(Experts(TinyGpt(2), 2))},
        ParityCase{"DelayedClipped", Clipped(InTurns(Experts(TinyLlama(2), 2), true))},
        ParityCase{"Zero1DelayedClipped", Clipped(InTurns(Kind(Experts(TinyGpt(4), 2), kZero1), true))},
        ParityCase{"Zero2Clipped", Clipped(InTurns(Kind(Experts(TinyLlama(4), 2), kZero2)))},
        ParityCase{"Zero2Delayed", InTurns(Kind(Experts(TinyGpt(2), 2), kZero2), true)},
        ParityCase{"TensorSequenceDelayed", InTurns(Tensor(Experts(TinyLlama(2), 2), true), true)},
        ParityCase{"OverTensorDelayedClipped",
                   Clipped(InTurns(OverTensor(Experts(TinyLlama(2), 1), 4), true))},
        ParityCase{"BehindPlainLayersDelayed", InTurns(Mixed(Experts(TinyLlama(2), 2)), true)},
        ParityCase{"SelectiveOp",
                   InTurns(Recomputed(Experts(TinyLlama(2), 2), Recompute::kSelectiveOp), true)},
        ParityCase{"Selective", InTurns(Recomputed(Experts(TinyGpt(2), 2), Recompute::kSelective))},
        ParityCase{"ModulesAgainDelayed",
                   InTurns(MadeAgain(BesideOne(Experts(TinyLlama(2), 2)),
                                     {RecomputeModule::kLayerNorm, RecomputeModule::kMoeActivation,
                                      RecomputeModule::kSharedExperts, RecomputeModule::kCoreAttention}),
                           true)},
        ParityCase{"PlainLayersAgain",
                   InTurns(MadeAgain(Mixed(Experts(TinyLlama(2), 2)),
                                     {RecomputeModule::kMlp, RecomputeModule::kMoeActivation}))},
        ParityCase{"TensorOverlapped", InTurns(TensorOverlapped(Experts(TinyLlama(2), 2)), true)},
        ParityCase{"Tied", InStages(Tied(Experts(TinyGpt(2), 2)), "interleaved", true)},
        ParityCase{"Interleaved", Clipped(InStages(Experts(TinyGpt(2), 2), "interleaved", false))},
        ParityCase{"InterleavedZero1Delayed",
                   InStages(Kind(Experts(TinyLlama(2), 2), kZero1), "interleaved", true)},
        ParityCase{"DualPipeVDelayed", InStages(Experts(TinyLlama(2), 2), "dualpipe_v", true)}),
    NameOf);

// Parts of blocks that are recomputed in backward: all of the experts' work, their all-to-all included, or
// some of it.
INSTANTIATE_TEST_SUITE_P(
    ModulesAgain, ExpertParity,
    testing::Values(
        ParityCase{"Moe", MadeAgain(BesideOne(Experts(TinyLlama(2), 2)), {RecomputeModule::kMoe})},
        ParityCase{"MoeFsdp", MadeAgain(Kind(Experts(TinyLlama(2), 2), DataParallelKind::kFsdp),
                                        {RecomputeModule::kMoe, RecomputeModule::kLayerNorm})},
        ParityCase{"MoeTensorSequence", MadeAgain(Tensor(Experts(TinyGpt(2), 2), true),
                                                  {RecomputeModule::kMoe, RecomputeModule::kLayerNorm})},
        ParityCase{"ActivationOverTensor",
                   MadeAgain(OverTensor(Experts(TinyLlama(2), 1), 4),
                             {RecomputeModule::kMoeActivation, RecomputeModule::kLayerNorm})},
        ParityCase{"PlainLayersAndShared",
                   MadeAgain(Mixed(BesideOne(Experts(TinyLlama(2), 2))),
                             {RecomputeModule::kMlp, RecomputeModule::kSharedExperts})}),
    NameOf);

// Eight ranks in two shard groups, each with every expert twice, so shards of experts have their own
// replicas.
TEST(ExpertParallel, ShardsExpertsWithinAndReplicatesThemAcrossGroups) {
  ExpectLossParity(Clipped(Sharded(Experts(TinyLlama(8), 2), kHybrid, 4)));
  ExpectLossParity(Clipped(InShards(Kind(Experts(TinyLlama(8), 2), DataParallelKind::kZero1), 4)));
}

INSTANTIATE_TEST_SUITE_P(
    WithShardsOfSomeRanks, ExpertParity,
    testing::Values(ParityCase{"Zero1Clipped", Clipped(InShards(Kind(Experts(TinyLlama(4), 2), kZero1), 2))},
                    ParityCase{"Zero1HasHalfTheExpertsClipped",
                               Clipped(InShards(Kind(Experts(TinyGpt(4), 4), kZero1), 2))},
                    ParityCase{"Zero2Alone", InShards(Kind(Experts(TinyLlama(4), 2), kZero2), 1)}),
    NameOf);

Scenario SharedOverContext() {
  Scenario s = Context(Kind(Experts(TinyLlama(), 1), kDdp), ContextKind::kRing);
  s.parallel.expert.size = 2;
  return s;
}
TEST(ExpertParallel, MayShareExpertsAmongContextRanks) { ExpectWeightParity(SharedOverContext()); }
TEST(ExpertParallel, TakesTurnsBesideARing) { ExpectWeightParity(InTurns(SharedOverContext(), true)); }

Scenario WithShared(Scenario s) {
  s.model.experts->shared_ffn = 48;
  return s;
}

// Gradients that earlier micro-batches have reduced stay as they are, though fewer ranks have an expert than
// share the data.
Scenario ReducedEachTime(Scenario s, bool view) {
  s = EveryMicroBatch(Kind(std::move(s), kDdp));
  s.parallel.data.gradient_as_bucket_view = view;
  return s;
}
INSTANTIATE_TEST_SUITE_P(
    WithDdpInEveryMicroBatch, ExpertParity,
    testing::Values(ParityCase{"Alone", ReducedEachTime(Experts(TinyLlama(2), 2), false)},
                    ParityCase{"Replicated", Clipped(ReducedEachTime(Experts(TinyLlama(4), 2), false))},
                    ParityCase{"InBuckets", ReducedEachTime(Experts(TinyLlama(4), 2), true)}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    WithASharedExpert, ExpertParity,
    testing::Values(
        ParityCase{"Gpt", WithShared(Experts(TinyGpt(2), 2))},
        ParityCase{"Llama", WithShared(Experts(TinyLlama(2), 2))},
        ParityCase{"Full", Recomputed(WithShared(Experts(TinyLlama(2), 2)), Recompute::kFull)},
        ParityCase{"SelectiveOp", Recomputed(WithShared(Experts(TinyLlama(2), 2)), Recompute::kSelectiveOp)},
        ParityCase{"Tensor", Tensor(WithShared(Experts(TinyGpt(2), 2)), false)},
        ParityCase{"TensorSequenceClipped", Clipped(Tensor(WithShared(Experts(TinyLlama(2), 2)), true))},
        ParityCase{"Zero2Clipped", Clipped(Kind(WithShared(Experts(TinyGpt(4), 2)), kZero2))},
        ParityCase{"FsdpClipped", Clipped(Sharded(WithShared(Experts(TinyLlama(4), 2)), kFull))},
        ParityCase{"InTurnsDelayedClipped", Clipped(InTurns(WithShared(Experts(TinyLlama(2), 2)), true))},
        ParityCase{"ZeroBubble", Staged(WithShared(Experts(TinyGpt(2), 2)), "zb_h1")}),
    NameOf);

// If the routed experts are zero, they give nothing and learn nothing. The shared expert is then the plain
// MLP that it looks like.
TEST(ExpertParallel, ASharedExpertIsTheMlpThatAllTokensGoThrough) {
  Scenario alone = TinyLlama();
  alone.model.ffn = 48;
  alone.optimizer.kind = OptimizerKind::kSgd;
  const Plan dense = *CompilePlan(alone);
  alone.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 2, .shared_ffn = 48};
  Plan mixture = *CompilePlan(alone);
  std::map<std::string, uint64_t> streams;
  const auto first_values = [](Op& op) { return std::get_if<InitializeParameter>(&op.kind); };
  for (Op op : dense.roles[0].initialize.ops)
    if (const InitializeParameter* first = first_values(op)) streams[op.name] = first->stream;
  int taken = 0;
  for (Op& op : mixture.roles[0].initialize.ops) {
    InitializeParameter* first = first_values(op);
    if (first == nullptr) continue;
    std::string name = op.name;
    if (name.find(".experts.") != std::string::npos)
      first->distribution = InitializeParameter::Distribution::kZeros;
    if (const size_t at = name.find("shared."); at != std::string::npos) name.erase(at, 7);
    if (const auto stream = streams.find(name); stream != streams.end()) {
      first->stream = stream->second;
      ++taken;
    }
  }
  EXPECT_EQ(taken, static_cast<int>(streams.size()));
  const Trained expected = Train(dense, kParitySteps), trained = Train(mixture, kParitySteps);
  for (int step = 0; step < kParitySteps; ++step)
    EXPECT_NEAR(trained.losses[step], expected.losses[step], kParityTolerance * expected.losses[step]);
}

// Each rank has its own room at an expert, for its own tokens, wherever the expert is.
TEST(ExpertParallel, DropsTheSameTokensHoweverExpertsAreShared) {
  const Trained shared = Train(*CompilePlan(Experts(TinyLlama(2), 2, 0.75)), kParitySteps);
  const Trained whole = Train(*CompilePlan(Kind(Experts(TinyLlama(2), 1, 0.75), kDdp)), kParitySteps);
  const Trained room = Train(*CompilePlan(Experts(TinyLlama(2), 2)), kParitySteps);
  for (int step = 0; step < kParitySteps; ++step)
    EXPECT_NEAR(shared.losses[step], whole.losses[step], kParityTolerance * whole.losses[step]);
  EXPECT_NE(shared.losses.back(), room.losses.back());
}

// Tensor ranks that split tokens have room for their own. If that is less than they need, tokens are dropped,
// and not the same ones as when room is for all tokens together.
TEST(ExpertParallel, TensorRanksDropOfTheirOwnTokens) {
  const auto losses = [](bool sequence, double capacity) {
    return Train(*CompilePlan(Tensor(Experts(TinyLlama(2), 2, capacity), sequence)), kParitySteps).losses;
  };
  const auto room = losses(true, 2), own = losses(true, 0.75), all = losses(false, 0.75);
  for (int step = 0; step < kParitySteps; ++step) {
    EXPECT_TRUE(std::isfinite(own[step])) << step;
    EXPECT_NEAR(own[step], room[step], 0.1 * room[step]) << step;
  }
  EXPECT_NE(own.back(), room.back());
  EXPECT_NE(own.back(), all.back());
  ExpectExactPeaks(*CompilePlan(Tensor(Experts(TinyLlama(2), 2, 0.75), true)));
}

TEST(ExpertParallelMemory, IsPredictedToTheByte) {
  ExpectExactPeaks(*CompilePlan(Experts(TinyLlama(2), 2)));
  ExpectExactPeaks(*CompilePlan(Kind(Experts(TinyGpt(4), 2), kZero1)));
  ExpectExactPeaks(*CompilePlan(InShards(Kind(Experts(TinyGpt(4), 2), kZero1), 2)));
  ExpectExactPeaks(*CompilePlan(Tensor(Experts(TinyLlama(2), 2), true)));
  for (Recompute recompute : {Recompute::kNone, Recompute::kSelectiveOp, Recompute::kFull})
    ExpectExactPeaks(*CompilePlan(Recomputed(WithShared(Experts(TinyLlama(2), 2)), recompute)));
}

TEST(ExpertParallelMemory, OfFsdpIsPredictedToTheByte) {
  for (int version : {1, 2}) {
    for (Sharding sharding : {kFull, Sharding::kShardGradOp, kHybrid}) {
      const Scenario s = Sharded(Experts(TinyLlama(4), 2), sharding, sharding == kHybrid ? 2 : 0, version);
      ExpectExactPeaks(*CompilePlan(s));
      ExpectExactPeaks(*CompilePlan(Accumulated(s)));
      ExpectExactPeaks(*CompilePlan(Recomputed(EveryMicroBatch(s), Recompute::kFull)));
    }
  }
  const Scenario s = Sharded(Experts(TinyLlama(4), 2), kFull);
  for (Offload offload : {Offload::kParam, Offload::kOptimizer})
    ExpectExactPeaks(*CompilePlan(Offloaded(s, offload)));
  ExpectExactPeaks(*CompilePlan(Clipped(Tensor(Sharded(Experts(TinyLlama(2), 2), kFull), true))));
  ExpectExactPeaks(*CompilePlan(Staged(Sharded(Experts(TinyLlama(2), 2), kFull), "1f1b")));
}

}  // namespace
}  // namespace windtunnel
