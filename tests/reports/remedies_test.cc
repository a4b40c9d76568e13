// Settings that make a step fit, checked against plans made by hand.
#include "reports/remedies.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "scenarios/load.h"
#include "sim/role_memory.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/reports/on_a100.h"

namespace windtunnel {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Result<Plan> Compile(const Scenario& scenario) { return CompilePlan(scenario); }
Result<Prediction> WithoutCosts(const Plan&) { return InvalidInput("no costs"); }
// As if recomputation cost less than anything else.
Result<Prediction> RecomputesFast(const Plan& plan) {
  Prediction prediction;
  prediction.p50 = Milliseconds(plan.scenario.recompute != Recompute::kFull ? 3
                                : plan.scenario.RecomputesSomeLayers()      ? 1
                                                                            : 2);
  return prediction;
}

// Replicas of a small GPT on one node.
Scenario Replicated(int replicas = 4) {
  Scenario s = TinyGpt(replicas);
  s.model.layers = 4;
  s.model.hidden = 256;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 1024;
  s.batch.micro = 64;
  s.parallel.data.kind = DataParallelKind::kDdp;
  return s;
}

Bytes ReservedBy(const Scenario& s) {
  return SimulateMemory(CompilePlan(s)->roles[0], {.allocator = s.allocator})->steady.reserved;
}

std::vector<std::vector<std::string>> SettingsOf(const Scenario& s) {
  std::vector<std::vector<std::string>> settings;
  for (const Remedy& remedy : RemediesFor(s)) settings.push_back(remedy.settings);
  return settings;
}

TEST(RemediesFor, LeaveOutWhatTheScenarioHas) {
  Scenario s = Replicated();
  s.recompute = Recompute::kFull;
  s.batch.micro = 1;
  s.parallel.data.kind = DataParallelKind::kFsdp;
  EXPECT_THAT(
      SettingsOf(s),
      ElementsAre(ElementsAre("cross_entropy_chunks=8"), ElementsAre("optimizer.in_backward=true"),
                  ElementsAre("activation_offload=true"),
                  ElementsAre("cross_entropy_chunks=8", "activation_offload=true"),
                  ElementsAre("optimizer.moments=int8"),
                  ElementsAre("optimizer.in_backward=true", "optimizer.moments=int8"),
                  ElementsAre("parallel.data.offload=param")));
  s.cross_entropy_chunks = 2;
  s.activation_offload = true;
  s.optimizer.in_backward = true;
  EXPECT_THAT(SettingsOf(s), ElementsAre(ElementsAre("optimizer.moments=int8")));
  s.optimizer.in_backward = false;
  s.optimizer.clip_norm = 1;
  EXPECT_THAT(SettingsOf(s),
              ElementsAre(ElementsAre("optimizer.moments=int8"), ElementsAre("parallel.data.offload=param")));
  s.optimizer.moments = MomentsType::kInt8;  // by kernels of devices
  EXPECT_THAT(SettingsOf(s), ElementsAre());
  s.optimizer.moments = MomentsType::kFp32;
  s.parallel.data.offload = Offload::kParam;
  EXPECT_THAT(SettingsOf(s), ElementsAre());
}

// Both shard what it shards, and refuse it.
TEST(RemediesFor, LeaveTheZeroRedundancyOptimizerWhereTheyShard) {
  Scenario s = Replicated();
  s.optimizer.zero_redundancy = true;
  EXPECT_THAT(SettingsOf(s),
              AllOf(Contains(ElementsAre("parallel.data.kind=fsdp", "optimizer.zero_redundancy=false")),
                    Not(Contains(ElementsAre("parallel.data.kind=fsdp")))));
}

TEST(RemediesFor, LeaveCompressionWhereTheyShard) {
  Scenario s = Replicated();
  s.parallel.data.powersgd = PowerSgdSpec{};
  EXPECT_THAT(SettingsOf(s),
              AllOf(Contains(ElementsAre("parallel.data.kind=fsdp", "parallel.data.powersgd=null")),
                    Not(Contains(ElementsAre("parallel.data.kind=fsdp")))));
}

TEST(RemediesFor, PackWhatIsFrozen) {
  Scenario s = Replicated(1);
  s.batch.micro = 1;
  s.parallel.data.kind = DataParallelKind::kNone;
  s.recompute = Recompute::kFull;
  s.cross_entropy_chunks = 2;
  EXPECT_THAT(SettingsOf(s), Not(Contains(Contains("model.lora.quantize=nf4"))));
  s.model.lora = LoraSpec{};
  EXPECT_THAT(SettingsOf(s), Contains(ElementsAre("model.lora.quantize=nf4")));
  s.model.lora->quantize = Quantization::kNf4Double;
  EXPECT_THAT(SettingsOf(s), Not(Contains(Contains("model.lora.quantize=nf4"))));
}

TEST(RemediesFor, KeepTheGlobalBatch) {
  const Scenario s = Replicated();
  for (const Remedy& remedy : RemediesFor(s))
    EXPECT_EQ(remedy.scenario.batch.micro * remedy.scenario.batch.accumulate,
              s.batch.micro * s.batch.accumulate);
}

TEST(RemediesFor, AreScenariosThatCompile) {
  for (const Remedy& remedy : RemediesFor(Replicated()))
    EXPECT_TRUE(CompilePlan(remedy.scenario)) << remedy.settings.front();
}

// A remedy's memory is that of the scenario that the loader makes with its settings: keys that follow from
// others are derived again.
TEST(RemediesFor, AreWhatTheLoaderMakesOfTheirSettings) {
  const std::string text = R"(
model: {layers: 4, hidden: 256, heads: 4, ffn: 1024, vocab: 512, seq_len: 64}
batch: {micro: 16, accumulate: 2}
precision: {param: bf16}
parallel: {data: {kind: KIND, size: 4, EXTRA}}
cluster: {device: a100-sxm-80g, devices_per_node: 4}
framework: pytorch
)";
  int compared = 0;
  for (const auto& [kind, extra] : {std::pair("ddp", "bucket_cap_mb: 5"),
                                    {"zero1", "overlap_param_gather: true"},
                                    {"zero1", "offload: optimizer"},
                                    {"zero2", "overlap: false"}}) {
    std::string with = text;
    with.replace(with.find("KIND"), 4, kind);
    with.replace(with.find("EXTRA"), 5, extra);
    const Scenario s = ParseScenario(with, "s.yaml", "", {}).value();
    for (const Remedy& remedy : RemediesFor(s)) {
      SCOPED_TRACE(fmt::format("{} {}: {}", kind, extra, fmt::join(remedy.settings, " ")));
      std::vector<Override> overrides;
      for (const std::string& setting : remedy.settings) overrides.push_back(ParseOverride(setting).value());
      const auto loaded = ParseScenario(with, "s.yaml", "", overrides);
      ASSERT_TRUE(loaded) << loaded.error().message;
      EXPECT_EQ(*ReservedWith(remedy, Compile), ReservedBy(*loaded));
      ++compared;
    }
  }
  EXPECT_GT(compared, 20);
}

// GPipe holds all micro-batches of a step.
TEST(RemediesFor, CountAllMicroBatchesThatAScheduleHolds) {
  Scenario s = Replicated();
  s.batch = {.micro = 1, .accumulate = 16};
  s.parallel.pipeline.size = 2;
  s.parallel.data.size = 2;
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
    s.parallel.pipeline.schedule = schedule;
    EXPECT_EQ(*ReservedWith({{}, s}, Compile), ReservedBy(s)) << schedule;
  }
}

// Groups that were given are not kept.
TEST(RemediesFor, ShardOverAllRanksInsteadOfGroups) {
  Scenario s = Replicated(8);
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.parallel.data.sharding = Sharding::kHybridShard;
  s.parallel.data.shard_size = 2;
  EXPECT_THAT(SettingsOf(s), Contains(ElementsAre("parallel.data.sharding=full_shard",
                                                  "parallel.data.shard_size=0", "recompute=full")));
}

// Micro-batches that hide each other's exchanges of tokens go neither with recomputed layers nor with moved
// activations.
TEST(RemediesFor, GiveUpWhatForbidsThem) {
  Scenario s = TinyLlama(2);
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2};
  s.batch.accumulate = 2;
  s.parallel.expert = {.size = 2, .overlap = true};
  EXPECT_THAT(SettingsOf(s),
              AllOf(Contains(ElementsAre("recompute=full", "parallel.expert.overlap=false")),
                    Contains(ElementsAre("activation_offload=true", "parallel.expert.overlap=false")),
                    Contains(ElementsAre("recompute=selective"))));
  s.parallel.expert.delay_wgrad = true;
  EXPECT_THAT(SettingsOf(s), Contains(ElementsAre("recompute=full", "parallel.expert.overlap=false",
                                                  "parallel.expert.delay_wgrad=false")));
}

TEST(RemediesFor, ShardAmongContextRanksAndOffloadASingleRank) {
  Scenario s = Replicated(1);
  const auto has = [&](std::vector<std::string> wanted) {
    const auto all = SettingsOf(s);
    return std::find(all.begin(), all.end(), wanted) != all.end();
  };
  EXPECT_TRUE(has({"parallel.data.kind=fsdp", "parallel.data.offload=param"}));
  s.model.attention = AttentionKind::kFlash;
  s.parallel.context.size = 4;
  s.cluster.devices_per_node = 4;
  EXPECT_TRUE(has({"parallel.data.kind=fsdp"}));
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.parallel.data.sharding = Sharding::kNoShard;
  EXPECT_TRUE(has({"parallel.data.sharding=full_shard"}));
}

// ZeRO-3 reduces in every micro-batch, and its groups offload nothing.
TEST(RemediesFor, MakeZero3OfWhatItRefuses) {
  Scenario s = Replicated();
  s.framework = Framework::kDeepspeed;
  s.batch.accumulate = 4;
  s.parallel.data.sync = GradientSync::kLastMicroBatch;
  s.derived.sync = false;
  EXPECT_THAT(SettingsOf(s), Contains(std::vector<std::string>{"parallel.data.kind=zero3",
                                                               "parallel.data.sync=every_micro_batch"}));
  s = Replicated(4);
  s.parallel.data.kind = DataParallelKind::kZero3;
  s.parallel.data.sync = GradientSync::kEveryMicroBatch;
  s.parallel.data.shard_size = 2;
  s.derived.shard_size = false;
  EXPECT_THAT(SettingsOf(s), Contains(std::vector<std::string>{"parallel.data.shard_size=4"}));
  EXPECT_THAT(SettingsOf(s), Contains(std::vector<std::string>{"parallel.data.shard_size=4",
                                                               "parallel.data.offload=param"}));
  EXPECT_THAT(DescribeRemedies(s, Bytes(0), MiB(64), Compile, WithoutCosts), Not(HasSubstr("pipeline")));
}

// Blocks as a whole are recomputed instead of a list of modules, and all of them instead of some.
TEST(RemediesFor, RecomputeMoreThanModulesOrSomeLayers) {
  Scenario s = Replicated();
  s.framework = Framework::kMegatronCore;
  s.recompute = Recompute::kSelective;
  s.recompute_modules = {RecomputeModule::kCoreAttention, RecomputeModule::kLayerNorm};
  const auto has = [&](std::vector<std::string> wanted) {
    const auto all = SettingsOf(s);
    return std::find(all.begin(), all.end(), wanted) != all.end();
  };
  EXPECT_TRUE(has({"recompute=full", "recompute_modules=[]"}));
  s.run.cuda_graphs = true;
  s.run.cuda_graph_scope = {CudaGraphScope::kMlp};
  EXPECT_TRUE(
      has({"recompute=full", "run.cuda_graphs=false", "run.cuda_graph_scope=[]", "recompute_modules=[]"}));
  s.run = {};
  s.recompute_modules.clear();
  s.recompute = Recompute::kFull;
  s.recompute_layers = 2;
  EXPECT_TRUE(has({"recompute_layers=0"}));
  s.recompute_layers = 0;
  s.recompute_every = 2;
  EXPECT_TRUE(has({"recompute_every=1"}));
}

TEST(RemediesFor, HaveNoFsdpOfFrameworksWithoutIt) {
  Scenario s = Replicated();
  s.framework = Framework::kDeepspeed;
  for (const Remedy& remedy : RemediesFor(s))
    EXPECT_NE(remedy.scenario.parallel.data.kind, DataParallelKind::kFsdp);
}

// Megatron-Core's offload of activations goes neither with recomputation nor with a pipeline.
TEST(RemediesFor, AreNothingThatTheFrameworkCannotDo) {
  Scenario s = Replicated(2);
  const auto moves = [&] {
    const std::vector<std::vector<std::string>> settings = SettingsOf(s);
    return std::count(settings.begin(), settings.end(), std::vector<std::string>{"activation_offload=true"});
  };
  s.framework = Framework::kMegatronCore;
  EXPECT_EQ(moves(), 1);
  s.parallel.pipeline.size = 2;
  s.batch.accumulate = 4;
  EXPECT_EQ(moves(), 0);
}

TEST(RemediesFor, ShardAndTakeSmallerMicroBatches) {
  Scenario s = Replicated();
  s.framework = Framework::kPytorch;
  EXPECT_THAT(SettingsOf(s),
              Contains(ElementsAre("parallel.data.kind=fsdp", "batch.micro=1", "batch.accumulate=64")));
}

TEST(DescribeRemedies, NamesThoseThatFit) {
  Scenario s = Replicated();
  s.framework = Framework::kMegatron;  // recomputes no single operators
  s.cluster.device = "a100-sxm-80g";
  s.cluster.network.intra_node.kind = "nvlink3";
  s.batch.micro = 1;
  s.model.seq_len *= 64;
  Scenario recomputed = s;
  recomputed.recompute = Recompute::kFull;
  const Bytes room = ReservedBy(recomputed), outside = OnA100(*CompilePlan(s))->outside_allocator;
  ASSERT_LT(room, ReservedBy(s));
  const std::string text = DescribeRemedies(s, room, outside, Compile, OnA100);
  EXPECT_THAT(text, HasSubstr("what would fit:\n        memory  step time\n"));
  EXPECT_THAT(text, HasSubstr("--set recompute=full  # at the limit\n"));
  EXPECT_THAT(text, Not(HasSubstr("recompute=full --set parallel"))) << "more than is needed";
  EXPECT_THAT(text, Not(HasSubstr("?"))) << "step times are known";
  s.framework = Framework::kPytorch;
  s.recompute = Recompute::kFull;
  s.parallel.data.kind = DataParallelKind::kFsdp;
  Scenario offloaded = s;
  offloaded.parallel.data.offload = Offload::kParam;
  EXPECT_THAT(DescribeRemedies(s, ReservedBy(offloaded), outside, Compile, OnA100),
              HasSubstr("of host memory a node\n"));
}

// Of four layers, as few as fit are recomputed; PyTorch recomputes every so many-th.
TEST(DescribeRemedies, RecomputesAsFewLayersAsFit) {
  Scenario s = Replicated(1);
  s.batch.micro = 1;
  s.model.seq_len *= 64;
  Scenario some = s;
  some.recompute = Recompute::kFull;
  some.recompute_layers = 2;
  const std::string text = DescribeRemedies(s, ReservedBy(some), MiB(64), Compile, RecomputesFast);
  EXPECT_THAT(text, HasSubstr("--set recompute=full --set recompute_layers=2\n"));
  EXPECT_THAT(text, HasSubstr("--set recompute=full\n"));
  some.recompute_layers = 0;
  some.recompute_every = 2;
  s.framework = some.framework = Framework::kPytorch;
  s.allocator = some.allocator = AllocatorKind::kPytorch;
  EXPECT_THAT(DescribeRemedies(s, ReservedBy(some), MiB(64), Compile, RecomputesFast),
              HasSubstr("--set recompute=full --set recompute_every="));
  s.model.layers = some.model.layers = 16;
  some.recompute_every = 8;
  EXPECT_THAT(DescribeRemedies(s, ReservedBy(some), MiB(64), Compile, RecomputesFast),
              HasSubstr("--set recompute=full --set recompute_every=8\n"));
}

// What a loss in one kernel, smaller micro-batches or single recomputed operators save comes before whole
// blocks that run again. Smaller micro-batches than those that fit are not needed.
TEST(DescribeRemedies, NamesFirstWhatCostsLittleTime) {
  Scenario s = Replicated(1);
  s.framework = Framework::kPytorch;
  s.allocator = AllocatorKind::kPytorch;
  s.model.vocab = 8192;
  const auto described = [&](const Scenario& with) {
    return DescribeRemedies(s, ReservedBy(with), MiB(64), Compile, WithoutCosts);
  };
  Scenario fused = s;
  fused.cross_entropy = CrossEntropyKind::kFused;
  EXPECT_THAT(described(fused), HasSubstr("--set cross_entropy=fused\n"));
  Scenario half = s;
  half.batch = {.micro = s.batch.micro / 2, .accumulate = 2};
  EXPECT_THAT(described(half), AllOf(HasSubstr("--set batch.micro=32 --set batch.accumulate=2\n"),
                                     Not(HasSubstr("batch.micro=1 "))));
}

// Three of them, by the predicted step, in whichever order they were tried.
TEST(DescribeRemedies, NamesTheFastest) {
  const PredictPlan predict = [](const Plan& plan) -> Result<Prediction> {
    const Scenario& s = plan.scenario;
    Prediction prediction;
    prediction.p50 = Milliseconds(s.activation_offload                              ? 100
                                  : s.recompute == Recompute::kFull                 ? 200
                                  : s.recompute != Recompute::kNone                 ? 400
                                  : s.optimizer.in_backward                         ? 300
                                  : s.parallel.data.kind == DataParallelKind::kFsdp ? 500
                                                                                    : 600);
    return prediction;
  };
  const std::string text = DescribeRemedies(Replicated(), Bytes::Max() / 2, MiB(64), Compile, predict);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
  const size_t first = text.find(" 200 ms  --set recompute=full\n");
  EXPECT_NE(first, std::string::npos) << text;
}

// A remedy's communicators may take more outside of the allocator than the scenario's.
TEST(DescribeRemedies, LeavesOutWhatIsPredictedNotToFit) {
  const PredictPlan predict = [](const Plan& plan) -> Result<Prediction> {
    Prediction prediction;
    prediction.p50 = Milliseconds(1);
    prediction.peak_reserved = GiB(1);
    if (plan.scenario.recompute == Recompute::kNone) prediction.outside_allocator = Bytes(1);
    return prediction;
  };
  const std::string text = DescribeRemedies(Replicated(), GiB(1), Bytes(0), Compile, predict);
  EXPECT_THAT(text, HasSubstr("1.00 GiB    1.00 ms  --set recompute=selective  # at the limit\n"));
  EXPECT_THAT(text, Not(HasSubstr("batch.micro=32 --set batch.accumulate=2\n")));
}

// Segments that grow leave no free pieces that are too small.
TEST(DescribeRemedies, NamesExpandableSegmentsWhereOnlyFragmentationIsTooMuch) {
  Scenario s = Replicated(1);
  s.batch.micro = 1;
  s.model.seq_len *= 64;
  s.framework = Framework::kPytorch;
  s.allocator = AllocatorKind::kPytorch;
  Scenario expandable = s;
  expandable.allocator = AllocatorKind::kPytorchExpandable;
  const Bytes room = ReservedBy(expandable);
  ASSERT_LT(room, ReservedBy(s));
  EXPECT_THAT(DescribeRemedies(s, room, MiB(64), Compile, WithoutCosts),
              HasSubstr("--set allocator=pytorch_expandable\n"));
  EXPECT_THAT(DescribeRemedies(s, room / 4, MiB(64), Compile, WithoutCosts),
              Not(HasSubstr("  --set allocator=pytorch_expandable\n")));
}

TEST(DescribeRemedies, ShardsOverAsFewRanksAsFit) {
  Scenario s = Replicated(8);
  s.batch.micro = 1;
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.parallel.data.sharding = Sharding::kHybridShard;
  s.parallel.data.shard_size = 2;
  Scenario wider = s;
  wider.parallel.data.shard_size = 4;
  EXPECT_THAT(DescribeRemedies(s, ReservedBy(wider), MiB(64), Compile, WithoutCosts),
              AllOf(HasSubstr("--set parallel.data.shard_size=4\n"),
                    HasSubstr("--set parallel.data.sharding=full_shard --set parallel.data.shard_size=0\n")));
}

TEST(DescribeRemedies, NamesTheLeastWhereNothingFits) {
  const std::string text = DescribeRemedies(Replicated(), Bytes(0), MiB(64), Compile, WithoutCosts);
  EXPECT_THAT(text,
              HasSubstr("what would fit?  more devices, or more tensor or pipeline ranks: of the changes "));
  EXPECT_THAT(text, HasSubstr("parallel.data.offload="));
}

}  // namespace
}  // namespace windtunnel
