// Configurations that are not composed are evaluated operator by operator, with the same results as Predict.
#include "sim/search/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "cost_models/cost_model.h"
#include "cost_models/device_spec.h"
#include "plan/plan.h"
#include "sim/predict.h"
#include "sim/search/space.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// 7 layers of odd sizes over 8 ranks: shards with padding, and ranks that hold nothing of a tensor.
Scenario Fsdp() {
  Scenario s = TinyLlama(8);
  s.model.layers = 7;
  s.model.vocab = 257;
  s.precision.param = s.precision.compute = Precision::kBf16;
  s.batch = {.micro = 2, .accumulate = 4};
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.framework = Framework::kPytorch;
  s.cluster.device = "a100-sxm-80g";
  s.cluster.devices_per_node = 8;
  s.cluster.network.intra_node.kind = "nvlink3";
  s.search.emplace();
  s.search->sharding = {Sharding::kFullShard, Sharding::kShardGradOp};
  s.search->micro = {1, 2, 8};
  s.search->recompute = {Recompute::kNone, Recompute::kFull};
  return s;
}

void ExpectAsPredict(const Scenario& scenario) {
  const std::string& device = scenario.cluster.device;
  const Profile profile = ParseProfile(EmbeddedProfile(device).value(), device).value();
  const Evaluator evaluator(scenario, profile);
  const SearchSpace space = EnumerateSpace(scenario).value();
  ASSERT_FALSE(space.legal.empty());
  for (const Configuration& configuration : space.legal) {
    Scenario alone = ScenarioOf(scenario, configuration);
    alone.search.reset();
    const Evaluation evaluation = evaluator.Evaluate(configuration);
    ASSERT_EQ(evaluation.outcome, Evaluation::Outcome::kFeasible) << evaluation.reason;
    const Plan plan = CompilePlan(alone).value();
    const auto model = MakeProfileCostModel(profile, plan);
    const Prediction prediction = Predict(plan, *model, {.seed = alone.run.seed}).value();
    EXPECT_EQ(evaluation.step_time, prediction.p50) << Describe(configuration);
    Bytes peak;
    for (const PredictedMemory& memory : prediction.memory) peak = std::max(peak, memory.steady.requested);
    EXPECT_EQ(evaluation.memory, peak + prediction.outside_allocator) << Describe(configuration);
  }
}

TEST(Evaluator, IsPredictOfShardedParameters) {
  for (int64_t version : {1, 2}) {
    for (AllocatorKind allocator : {AllocatorKind::kPytorch, AllocatorKind::kWindtunnel}) {
      Scenario s = Fsdp();
      s.parallel.data.version = static_cast<int>(version);
      s.allocator = allocator;
      ExpectAsPredict(s);
    }
  }
}

// A plan that is compiled for predictions only lacks what predictions do not use. The points at which memory
// waits for streams are still there.
// What is computed once and shared among configurations depends on where optimizer states are.
TEST(Evaluator, IsPredictOfWhatIsOffloaded) {
  Scenario s = Fsdp();
  s.search->sharding = {Sharding::kFullShard};
  s.search->micro = {2};
  s.model.layers = 12;  // more than are compiled of a stretched step
  s.batch.accumulate = 8;
  s.search->offload = {Offload::kNone, Offload::kOptimizer, Offload::kParam};
  ExpectAsPredict(s);
}

TEST(Evaluator, IsPredictOfKindsOfContextParallelism) {
  for (const DataParallelKind kind : {DataParallelKind::kFsdp, DataParallelKind::kZero1}) {
    Scenario s = Fsdp();
    s.parallel.data.kind = kind;
    s.parallel.data.size = 4;
    s.parallel.context.size = 2;
    s.model.attention = AttentionKind::kFlash;
    s.search->sharding = {Sharding::kFullShard};
    s.search->micro = {2};
    s.search->context = {1, 2};
    s.search->context_kind = {ContextKind::kRing, ContextKind::kAllGather, ContextKind::kUlysses};
    ExpectAsPredict(s);
  }
}

TEST(Evaluator, PlansThatNothingRunsArePredictedAsThoseThatRun) {
  const Profile profile = ParseProfile(EmbeddedProfile("a100-sxm-80g").value(), "a100-sxm-80g").value();
  std::vector<Scenario> scenarios(3, Fsdp());
  scenarios[1].parallel.data.version = 1;
  scenarios[2].parallel.data = {.kind = DataParallelKind::kZero1, .size = 4};
  scenarios[2].parallel.pipeline = {.size = 2, .schedule = "1f1b", .virtual_stages = 1, .balance = {4, 3}};
  for (const Scenario& scenario : scenarios) {
    const Plan whole = CompilePlan(scenario).value(),
               slim = CompilePlan(scenario, {.predicts = true}).value();
    const auto predict = [&](const Plan& plan) {
      return Predict(plan, *MakeProfileCostModel(profile, plan), {}).value();
    };
    const Prediction a = predict(whole), b = predict(slim);
    EXPECT_EQ(a.p50, b.p50);
    EXPECT_EQ(a.by_operator, b.by_operator);
    EXPECT_EQ(a.initial_peak, b.initial_peak);
    ASSERT_EQ(a.memory.size(), b.memory.size());
    for (size_t i = 0; i < a.memory.size(); ++i) {
      EXPECT_EQ(a.memory[i].steady.allocated, b.memory[i].steady.allocated);
      EXPECT_EQ(a.memory[i].steady.reserved, b.memory[i].steady.reserved);
    }
    for (const Op& op : slim.roles[0].steady.ops) EXPECT_TRUE(op.reads.empty());
  }
}

// Resharding to one rank is the loader's other way to say that parameters stay gathered.
TEST(Evaluator, ReshardingToOneRankIsNone) {
  const Profile profile = ParseProfile(EmbeddedProfile("h100-sxm-80g").value(), "h100-sxm-80g").value();
  Scenario whole = Fsdp();
  whole.cluster.device = "h100-sxm-80g";
  whole.model.hidden = 4096;
  whole.model.head_dim = whole.model.hidden / whole.model.heads;
  whole.model.ffn = 4 * whole.model.hidden;
  whole.model.seq_len = 2048;
  whole.parallel.data.reshard_after_forward = false;
  Scenario to_one = whole;
  to_one.parallel.data.reshard_after_forward = true;
  to_one.parallel.data.reshard_ranks = 1;
  const auto step = [&](const Scenario& scenario) {
    const Plan plan = CompilePlan(scenario, {.predicts = true}).value();
    return Predict(plan, *MakeProfileCostModel(profile, plan), {}).value().p50;
  };
  EXPECT_EQ(step(whole), step(to_one));
}

// The search has only outlines of its configurations, yet GEMMs are as fast as they are in the whole step.
TEST(Evaluator, IsPredictUnderAPowerLimit) {
  Scenario s = TinyLlama(8);
  s.model.layers = 8;
  s.model.hidden = 2048;
  s.model.heads = s.model.kv_heads = 16;
  s.model.head_dim = 128;
  s.model.ffn = 8192;
  s.model.seq_len = 2048;
  s.precision.param = s.precision.compute = Precision::kBf16;
  s.batch = {.micro = 1, .accumulate = 8};
  s.parallel.data.kind = DataParallelKind::kDdp;
  s.framework = Framework::kMegatronCore;
  s.cluster.device = "h100-sxm-80g";
  s.cluster.devices_per_node = 8;
  s.search.emplace();
  s.search->tensor = {1, 2};
  s.search->pipeline = {1, 2};
  s.search->recompute = {Recompute::kNone, Recompute::kFull};
  ExpectAsPredict(s);
}

// A search's threads share one evaluator.
TEST(Evaluator, SaysTheSameToSeveralThreadsAtOnce) {
  Scenario s = Fsdp();
  s.cluster.device = "h100-sxm-80g";  // whose GEMMs are as fast as the power that their blocks leave allows
  s.framework = Framework::kMegatronCore;
  s.model.layers = 8;
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.search->sharding.clear();
  s.search->tensor = {1, 2};
  s.search->pipeline = {1, 2, 4};
  const Profile profile = ParseProfile(EmbeddedProfile("h100-sxm-80g").value(), "h100").value();
  const SearchSpace space = EnumerateSpace(s).value();
  ASSERT_GT(space.legal.size(), 8u);
  const Evaluator of_one(s, profile), of_all(s, profile);
  constexpr int kThreads = 4;
  std::vector<std::vector<Evaluation>> found(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (const Configuration& configuration : space.legal)
        found[thread].push_back(of_all.Evaluate(configuration));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < space.legal.size(); ++i) {
    const Evaluation expected = of_one.Evaluate(space.legal[i]);
    for (const std::vector<Evaluation>& of_thread : found) {
      EXPECT_EQ(of_thread[i].outcome, expected.outcome) << expected.reason;
      EXPECT_EQ(of_thread[i].step_time, expected.step_time);
      EXPECT_EQ(of_thread[i].memory, expected.memory);
    }
  }
}

TEST(Evaluator, IsPredictsMedianWhereStepsVary) {
  Scenario s = Fsdp();
  s.search->sharding.clear();
  s.search->micro = {2};
  s.cluster.jitter = 0.05;
  ExpectAsPredict(s);
}

}  // namespace
}  // namespace windtunnel
