// The composed evaluator says what Predict says, to the picosecond and the byte.
#include "sim/composed/composed_step.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cost_models/cost_model.h"
#include "cost_models/device_spec.h"
#include "cost_models/profile.h"
#include "plan/plan.h"
#include "sim/predict.h"
#include "sim/search/space.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

const Profile& A100() {
  static const Profile profile =
      ParseProfile(EmbeddedProfile("a100-sxm-80g").value(), "a100-sxm-80g").value();
  return profile;
}

struct Both {
  Duration composed_time, predicted_time;
  Bytes composed_memory, predicted_memory;
};

Result<Both> Compare(ComposedSteps& steps, const Scenario& scenario) {
  WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(scenario));
  const auto model = MakeProfileCostModel(A100(), plan);
  WT_ASSIGN_OR_RETURN(const ComposedSteps::Step step, steps.Compose(scenario, *model, Bytes::Max()));
  WT_ASSIGN_OR_RETURN(const Prediction prediction, Predict(plan, *model, {}));
  Both both{step.Time(), prediction.p50, step.memory(), {}};
  for (const PredictedMemory& memory : prediction.memory)
    both.predicted_memory = std::max(both.predicted_memory, memory.steady.requested);
  return both;
}

void ExpectSame(ComposedSteps& steps, const Scenario& scenario, const std::string& what) {
  const auto both = Compare(steps, scenario);
  ASSERT_TRUE(both) << what << ": " << both.error().message;
  EXPECT_EQ(both->composed_time.picoseconds(), both->predicted_time.picoseconds()) << what;
  EXPECT_EQ(both->composed_memory.count(), both->predicted_memory.count()) << what;
}

// Small enough to predict in milliseconds, with kernels long enough for the host to be ahead of, when `wide`.
Scenario Base(bool wide) {
  Scenario s = TinyLlama(8);
  s.model.layers = 8;
  s.model.hidden = wide ? 2048 : 64;
  s.model.heads = s.model.kv_heads = 4;
  s.model.ffn = 4 * s.model.hidden;
  s.model.seq_len = wide ? 2048 : 32;
  s.model.vocab = 512;
  s.precision.param = s.precision.compute = Precision::kBf16;
  s.batch = {.micro = 2, .accumulate = 4};
  s.cluster.device = "a100-sxm-80g";
  s.cluster.devices_per_node = 8;
  s.cluster.network.intra_node.kind = "nvlink3";
  s.cluster.network.inter_node.kind = "infiniband";
  s.cluster.network.inter_node.gbits_per_nic = 200;
  s.cluster.network.nics_per_node = 8;
  return s;
}

void ExpectSameInSpace(const Scenario& s) {
  ComposedSteps steps;
  const SearchSpace space = EnumerateSpace(s).value();
  ASSERT_FALSE(space.legal.empty());
  for (const Configuration& c : space.legal) {
    ExpectSame(steps, ScenarioOf(s, c), Describe(c));
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ComposedStep, IsPredictWithoutParallelism) {
  for (bool wide : {false, true}) {
    Scenario s = Base(wide);
    s.search.emplace();
    s.search->devices = {1};
    s.search->micro = {1, 2};
    s.search->recompute = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
    ExpectSameInSpace(s);
  }
}

TEST(ComposedStep, IsPredictWithReplicas) {
  for (bool wide : {false, true}) {
    Scenario s = Base(wide);
    s.search.emplace();
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    s.search->overlap = {true, false};
    s.search->micro = {1, 8};
    s.search->recompute = {Recompute::kNone, Recompute::kFull};
    ExpectSameInSpace(s);
  }
}

TEST(ComposedStep, IsPredictWithTensorParallelism) {
  for (bool wide : {false, true}) {
    Scenario s = Base(wide);
    s.search.emplace();
    s.search->tensor = {2, 4};
    s.search->sequence = {true, false};
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    s.search->recompute = {Recompute::kNone, Recompute::kFull};
    ExpectSameInSpace(s);
  }
}

TEST(ComposedStep, IsPredictInPipelines) {
  for (bool wide : {false, true}) {
    Scenario s = Base(wide);
    s.search.emplace();
    s.search->pipeline = {2, 4, 8};
    s.search->virtual_stages = {1, 2, 4};
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    s.search->overlap = {true, false};
    ExpectSameInSpace(s);
  }
}

TEST(ComposedStep, IsPredictUnderOtherSchedules) {
  Scenario s = Base(true);
  s.search.emplace();
  s.search->pipeline = {2, 4};
  s.search->virtual_stages = {1, 2};
  s.search->schedule = {"none", "gpipe", "1f1b", "interleaved", "looped_bfs"};
  ExpectSameInSpace(s);
}

}  // namespace
}  // namespace windtunnel
