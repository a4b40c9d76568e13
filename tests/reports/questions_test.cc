// The answers that people plan with, checked against plans made by hand.
#include "reports/questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/units.h"
#include "scenarios/checks.h"
#include "sim/role_memory.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/reports/on_a100.h"

namespace windtunnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A small GPT under FSDP on two A100s.
Scenario Sharded() {
  Scenario s = TinyGpt(2);
  s.model.layers = 4;
  s.model.hidden = 256;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 1024;
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.cluster.device = "a100-sxm-80g";
  s.cluster.network.intra_node.kind = "nvlink3";
  return s;
}

Bytes ReservedWith(int64_t micro) {
  Scenario s = Sharded();
  s.batch.micro = micro;
  return SimulateMemory(CompilePlan(s)->roles[0])->steady.reserved;
}

Result<Plan> Compile(const Scenario& scenario) { return CompilePlan(scenario); }

TEST(LargestMicroBatch, FitsAndTheNextDoesNot) {
  const Bytes capacity = ReservedWith(13), outside = MiB(1);
  const int64_t largest = *LargestMicroBatch(Sharded(), Compile, capacity + outside, outside, 1000);
  EXPECT_GE(largest, 13);
  EXPECT_LE(ReservedWith(largest), capacity);
  EXPECT_GT(ReservedWith(largest + 1), capacity);
}

TEST(LargestMicroBatch, IsZeroWhenNothingFitsAndStopsAtTheMost) {
  EXPECT_EQ(*LargestMicroBatch(Sharded(), Compile, MiB(1), Bytes(0), 1000), 0);
  // The bytes outside the allocator alone are too much.
  EXPECT_EQ(*LargestMicroBatch(Sharded(), Compile, MiB(1), MiB(2), 1000), 0);
  EXPECT_EQ(*LargestMicroBatch(Sharded(), Compile, Bytes::Max() / 2, Bytes(0), 5), 5);
}

// Each micro-batch size is compiled as its prediction is, with its own stages.
TEST(LargestMicroBatch, IsOfWhatWouldBePredicted) {
  const CompileScenario odd = [](const Scenario& scenario) {
    Scenario other = scenario;
    if (scenario.batch.micro > 7) other.model.layers *= 4;
    return CompilePlan(other);
  };
  EXPECT_EQ(*LargestMicroBatch(Sharded(), odd, ReservedWith(20), Bytes(0), 1000), 7);
}

TEST(LargestMicroBatch, DoesNotCompileWhatIsKnown) {
  Scenario s = Sharded();
  s.batch.micro = 13;
  const CompileScenario compile = [](const Scenario& scenario) {
    EXPECT_NE(scenario.batch.micro, 13);
    return CompilePlan(scenario);
  };
  EXPECT_GE(*LargestMicroBatch(s, compile, ReservedWith(13), Bytes(0), 1000, /*fits_now=*/true), 13);
}

// 1F1B does not hold more when there are more micro-batches than fill it. GPipe holds all of them.
TEST(LargestMicroBatch, IsOfAllMicroBatchesWhateverTheScheduleHolds) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    SCOPED_TRACE(schedule);
    Scenario s = TinyGpt();
    s.parallel.pipeline = {.size = 2, .schedule = schedule};
    s.cluster.devices_per_node = 2;
    s.batch = {.micro = 3, .accumulate = 16};
    const auto reserved = [&](int64_t micro) {
      Scenario with = s;
      with.batch.micro = micro;
      Bytes most;
      const Plan plan = *CompilePlan(with);
      for (const Role& role : plan.roles) most = std::max(most, SimulateMemory(role)->steady.reserved);
      return most;
    };
    const Bytes capacity = reserved(5);
    const int64_t largest = *LargestMicroBatch(s, Compile, capacity, Bytes(0), 1000);
    EXPECT_GE(largest, 5);
    EXPECT_LE(reserved(largest), capacity);
    EXPECT_GT(reserved(largest + 1), capacity);
  }
}

TEST(WaysOfResharding, AreComparedWithKeepingParametersAfterForward) {
  const auto ways = *WaysOfResharding(Sharded(), Compile, OnA100);
  ASSERT_EQ(ways.size(), 2u) << "one node has all ranks";
  const Resharding &whole = ways[0], &sharded = ways[1];
  EXPECT_EQ(whole.gathers, 5);
  EXPECT_EQ(sharded.gathers, 9);  // four blocks twice, the root once
  EXPECT_LT(sharded.peak, whole.peak);
  EXPECT_GE(sharded.step, whole.step);
}

// Backward then gathers within a node, from parts that are larger than a shard.
TEST(WaysOfResharding, AreThreeWhereShardGroupsHaveSeveralNodes) {
  Scenario s = Sharded();
  s.parallel.data.size = 16;
  s.cluster.nodes = 2;
  s.cluster.network.inter_node = {.kind = "infiniband", .gbits_per_nic = 200, .latency_us = {}};
  s.cluster.devices_per_node = 8;
  const auto ways = *WaysOfResharding(s, Compile, OnA100);
  ASSERT_EQ(ways.size(), 3u);
  EXPECT_EQ(ways[2].ranks, 8);
  EXPECT_EQ(ways[2].gathers, ways[1].gathers);
  EXPECT_GT(ways[2].peak, ways[1].peak);
  EXPECT_LT(ways[2].peak, ways[0].peak);
  EXPECT_LT(ways[2].step, ways[1].step);
  s.parallel.data.reshard_ranks = 4;
  EXPECT_EQ((*WaysOfResharding(s, Compile, OnA100))[2].ranks, 4) << "the scenario's own";
  s.parallel.data.reshard_ranks = 0;
  s.parallel.data.version = 1;
  EXPECT_EQ(WaysOfResharding(s, Compile, OnA100)->size(), 2u);
}

// Weights in 4 bits are not gathered to fewer ranks: `predict` refuses that, and so it is no question.
TEST(WaysOfResharding, AreThoseThatPredictTakes) {
  Scenario s = Sharded();
  s.model.lora = LoraSpec{.rank = 4, .quantize = Quantization::kNf4};
  s.parallel.data.size = 16;
  s.cluster.nodes = 2;
  s.cluster.network.inter_node = {.kind = "infiniband", .gbits_per_nic = 200, .latency_us = {}};
  s.cluster.devices_per_node = 8;
  ASSERT_TRUE(CheckScenario(s)) << CheckScenario(s).error().message;
  EXPECT_EQ(WaysOfResharding(s, Compile, OnA100)->size(), 2u);
}

// shard_grad_op keeps parameters, so the settings that are named are of full_shard.
TEST(AnswerQuestions, NamesTheShardingThatReshardsAfterForward) {
  Scenario s = Sharded();
  s.parallel.data.size = 16;
  s.parallel.data.sharding = Sharding::kShardGradOp;
  s.parallel.data.reshard_after_forward = false;
  s.cluster.nodes = 2;
  s.cluster.network.inter_node = {.kind = "infiniband", .gbits_per_nic = 200, .latency_us = {}};
  s.cluster.devices_per_node = 8;
  const Plan plan = *CompilePlan(s);
  EXPECT_THAT(AnswerQuestions(s, plan, *OnA100(plan), std::nullopt, Compile, OnA100, Ink(false)),
              HasSubstr("to 8 ranks (sharding: full_shard, reshard_after_forward: 8):  "));
}

TEST(WaysOfResharding, AreNoneWhereNothingIsSharded) {
  Scenario s = Sharded();
  s.parallel.data.sharding = Sharding::kNoShard;
  EXPECT_TRUE(WaysOfResharding(s, Compile, OnA100)->empty());
  s.parallel.data.kind = DataParallelKind::kDdp;
  EXPECT_TRUE(WaysOfResharding(s, Compile, OnA100)->empty());
}

// Three fp32 copies of the logits are most of what a small model with a large vocabulary holds.
TEST(WithFusedLoss, IsComparedWhereTheFrameworkHasSuchLosses) {
  Scenario s = Sharded();
  s.model.vocab = 32768;
  s.batch.micro = 64;
  EXPECT_FALSE(*WithFusedLoss(s, Compile, OnA100)) << "our own loss is fused";
  s.framework = Framework::kPytorch;
  const auto fused = *WithFusedLoss(s, Compile, OnA100);
  ASSERT_TRUE(fused);
  const Prediction eager = *OnA100(*CompilePlan(s));
  EXPECT_LT(fused->peak, eager.memory.front().steady.allocated);
  EXPECT_LT(fused->step, eager.p50);
  const auto text = [&] {
    const Plan plan = *CompilePlan(s);
    return AnswerQuestions(s, plan, *OnA100(plan), std::nullopt, Compile, OnA100, Ink(false));
  };
  const char* line = "a fused loss (cross_entropy: fused):  saves ";
  EXPECT_NE(text().find(line), std::string::npos) << text();
  s.model.vocab = 64;
  s.model.hidden = 2048;
  s.model.head_dim = s.model.hidden / s.model.heads;
  EXPECT_EQ(text().find(line), std::string::npos) << "few logits: " << text();
  s.cross_entropy = CrossEntropyKind::kFused;
  EXPECT_EQ(text().find(line), std::string::npos) << text();
}

TEST(ActivationsOnHost, AreComparedEitherWay) {
  Scenario s = Sharded();
  s.model.layers = 12;
  s.batch.micro = 64;
  const auto of = [&] { return *ActivationsOnHost(s, *OnA100(*CompilePlan(s)), Compile, OnA100); };
  const auto now = of();
  ASSERT_TRUE(now);
  EXPECT_LT(now->on_host.peak, now->on_device.peak);
  EXPECT_GT(now->of_node, Bytes());
  s.activation_offload = true;
  const auto then = of();
  ASSERT_TRUE(then);
  EXPECT_EQ(then->on_host.peak, now->on_host.peak);
  EXPECT_EQ(then->on_host.step, now->on_host.step);
  EXPECT_EQ(then->on_device.peak, now->on_device.peak);
  EXPECT_EQ(then->of_node, now->of_node);
  const Plan plan = *CompilePlan(s);
  const std::string text = AnswerQuestions(s, plan, *OnA100(plan), std::nullopt, Compile, OnA100, Ink(false));
  EXPECT_NE(text.find("activations on the host (activation_offload: true):  saves "), std::string::npos)
      << text;
  s.cluster.device = "cpu";
  EXPECT_FALSE(of()) << "there is one memory";
}

// Megatron-Core's offloading goes neither with recomputation nor with a pipeline.
TEST(ActivationsOnHost, AreNotComparedWhereTheFrameworkDoesNotMoveThem) {
  Scenario s = Sharded();
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.framework = Framework::kMegatronCore;
  const auto of = [&] { return *ActivationsOnHost(s, *OnA100(*CompilePlan(s)), Compile, OnA100); };
  EXPECT_TRUE(of());
  s.recompute = Recompute::kFull;
  EXPECT_FALSE(of());
}

// A fused loss would let the last stage have more layers, which is another change.
TEST(AnswerQuestions, ComparesWithTheSameStages) {
  Scenario s = Sharded();
  s.framework = Framework::kPytorch;
  s.parallel.data = {};
  s.parallel.pipeline = {.size = 2, .schedule = "1f1b"};
  s.batch = {.micro = 64, .accumulate = 4};
  s.model.vocab = 32768;
  s.parallel.pipeline.balance = {3, 1};
  const Plan plan = *CompilePlan(s);
  s.parallel.pipeline.balance.clear();
  int compiled = 0;
  const CompileScenario compile = [&](const Scenario& variant) {
    EXPECT_THAT(variant.parallel.pipeline.balance, ElementsAre(3, 1));
    ++compiled;
    return CompilePlan(variant);
  };
  const auto answers = [&] {
    return AnswerQuestions(s, plan, *OnA100(plan), std::nullopt, compile, OnA100, Ink(false));
  };
  EXPECT_THAT(answers(), HasSubstr("with the stages as they are"));
  EXPECT_GT(compiled, 0);
  s.parallel.pipeline.balance = {3, 1};
  EXPECT_THAT(answers(), Not(HasSubstr("with the stages as they are")));
}

TEST(AnswerQuestions, SaysWhatIsTooMuch) {
  const Plan plan = *CompilePlan(Sharded());
  const Prediction prediction = *OnA100(plan);
  const std::string fits = AnswerQuestions(
      plan.scenario, plan, prediction, Capacity{GiB(80), "the device's memory"}, Compile, OnA100, Ink(false));
  EXPECT_NE(fits.find("will it fit?  yes: "), std::string::npos) << fits;
  EXPECT_NE(fits.find("for 4 more all-gathers"), std::string::npos) << fits;
  const std::string tight = AnswerQuestions(plan.scenario, plan, prediction,
                                            Capacity{MiB(1), "a toy's memory"}, Compile, OnA100, Ink(false));
  EXPECT_NE(tight.find("will it fit?  NO: "), std::string::npos) << tight;
  EXPECT_NE(tight.find("none, not even 1"), std::string::npos) << tight;
  Prediction retries = prediction;
  retries.memory[0].steady.retries = 3;
  const std::string just = AnswerQuestions(
      plan.scenario, plan, retries, Capacity{GiB(80), "the device's memory"}, Compile, OnA100, Ink(false));
  EXPECT_NE(just.find("will it fit?  only just: "), std::string::npos) << just;
  EXPECT_EQ(just.find("too much"), std::string::npos) << just;
  const std::string unknown =
      AnswerQuestions(plan.scenario, plan, prediction, std::nullopt, Compile, OnA100, Ink(false));
  EXPECT_NE(unknown.find("the device's memory is not known"), std::string::npos) << unknown;
}

TEST(UnitUses, AddUpEveryUnitsTransfers) {
  const Plan plan = *CompilePlan(Sharded());
  const std::vector<UnitUse> uses = UnitUses(plan, *OnA100(plan));
  ASSERT_EQ(uses.size(), 5u);
  EXPECT_EQ(uses[0].name, "root");
  EXPECT_EQ(uses[0].forward_gather.count, 1);
  EXPECT_EQ(uses[0].backward_gather.count, 0);
  for (size_t i = 1; i < uses.size(); ++i) {
    EXPECT_EQ(uses[i].forward_gather.count, 1) << uses[i].name;
    EXPECT_EQ(uses[i].backward_gather.count, 1) << uses[i].name;
    EXPECT_EQ(uses[i].reduction.count, 1) << uses[i].name;
    EXPECT_EQ(uses[i].reduction.bytes, uses[i].forward_gather.bytes) << uses[i].name;  // fp32 both
    EXPECT_LE(uses[i].reduction.hidden, uses[i].reduction.time) << uses[i].name;
  }
  Duration critical;
  for (const UnitUse& use : uses) critical += use.critical_compute + use.critical_communication;
  EXPECT_GT(critical, Duration());
}

// ZeRO-3 gathers in forward, backward and behind the update, and reduces other parameters together than it
// gathers.
TEST(ExplainUnits, HaveAColumnForEachOfZero3sGathers) {
  Scenario s = Sharded();
  s.parallel.data.kind = DataParallelKind::kZero3;
  s.parallel.data.sync = GradientSync::kEveryMicroBatch;
  s.parallel.data.zero3 = {
      .prefetch_bucket_size = 5000, .param_persistence_threshold = 256, .max_reuse_distance = 0};
  s.parallel.data.bucket_cap_mb = 0.05;
  const Plan plan = *CompilePlan(s);
  const Prediction prediction = *OnA100(plan);
  const std::string text = ExplainUnits(plan, prediction, Ink(false));
  for (const char* column : {"gather forward", "gather backward", "gather update", "reduce"})
    EXPECT_NE(text.find(column), std::string::npos) << column << text;
  Duration compute;
  for (const UnitUse& use : UnitUses(plan, prediction)) {
    if (use.forward_gather.count > 0) compute += use.critical_compute;
    EXPECT_EQ(use.name.find("gradients"), std::string::npos) << use.name;
  }
  EXPECT_GT(compute, Duration());
  // DeepSpeed gathers every norm and bias by itself.
  s.framework = Framework::kDeepspeed;
  const Plan deepspeed = *CompilePlan(s);
  const std::string of_deepspeed = ExplainUnits(deepspeed, *OnA100(deepspeed), Ink(false));
  EXPECT_NE(of_deepspeed.find(" small parameters "), std::string::npos) << of_deepspeed;
}

TEST(ExplainUnits, PutsManyLikeUnitsIntoOneLine) {
  Scenario s = Sharded();
  s.model.layers = 40;
  const Plan plan = *CompilePlan(s);
  const std::string text = ExplainUnits(plan, *OnA100(plan), Ink(false));
  EXPECT_NE(text.find("… 33 more together"), std::string::npos) << text;  // of 41 all but four at each end
  EXPECT_NE(text.find("blocks.39"), std::string::npos) << text;
}

}  // namespace
}  // namespace windtunnel
