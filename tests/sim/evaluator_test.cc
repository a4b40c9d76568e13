// What is not composed is evaluated operator by operator, and comes out as Predict has it all the same.
#include "sim/search/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

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

// Of a search's configurations only outlines are known, and products are as fast as in all of the step.
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

TEST(Evaluator, IsPredictsMedianWhereStepsVary) {
  Scenario s = Fsdp();
  s.search->sharding.clear();
  s.search->micro = {2};
  s.cluster.jitter = 0.05;
  ExpectAsPredict(s);
}

}  // namespace
}  // namespace windtunnel
