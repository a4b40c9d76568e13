#include "tests/sim/composed_step_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cost_models/cost_model.h"
#include "cost_models/framework_profile.h"
#include "cost_models/layer_factors.h"
#include "plan/plan.h"
#include "sim/predict.h"
#include "sim/search/space.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/sim/datasheets.h"

namespace windtunnel {

Result<Both> Compare(ComposedSteps& steps, const Scenario& scenario) {
  const Fp8Recipe recipe = scenario.precision.fp8_recipe;
  const bool is_h100 = recipe == Fp8Recipe::kNone && scenario.cluster.device == "h100-sxm-80g";
  return Compare(steps, scenario, is_h100 ? H100() : DatasheetFor(recipe));
}

Result<Both> Compare(ComposedSteps& steps, const Scenario& scenario, const Profile& profile) {
  WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(scenario));
  // As searches compose (sim/search/evaluator.cc).
  const auto model = MakeProfileCostModel(profile, plan, nullptr, CardSharing::kIgnored);
  WT_ASSIGN_OR_RETURN(const auto step, steps.Compose(scenario, *model, Bytes::Max()));
  WT_ASSIGN_OR_RETURN(const Prediction prediction, Predict(plan, *model, {}));
  Both both{step.Time(), prediction.p50, step.memory(), {}};
  for (const PredictedMemory& memory : prediction.memory)
    both.predicted_memory = std::max(both.predicted_memory, memory.steady.requested);
  return both;
}

Profile WithLayerFactors(const Profile& profile, const Scenario& scenario) {
  std::vector<LayerFactors::Known> known;
  for (const int64_t micro : {1, 2, 4}) {
    Scenario of = scenario;
    of.batch.micro = micro;
    known.push_back({LayerShapeOf(of), 1 + 0.1 * static_cast<double>(micro)});
  }
  Profile with = profile;
  with.framework = FrameworkOf(scenario);
  with.framework->residuals.layers = LayerFactors(std::move(known));
  return with;
}

void ExpectSame(ComposedSteps& steps, const Scenario& scenario, const std::string& what) {
  const auto both = Compare(steps, scenario);
  ASSERT_TRUE(both) << what << ": " << both.error().message;
  EXPECT_EQ(both->composed_time.picoseconds(), both->predicted_time.picoseconds()) << what;
  EXPECT_EQ(both->composed_memory.count(), both->predicted_memory.count()) << what;
}

void ExpectSameInSpace(const Scenario& s) {
  constexpr size_t kMost = 6;
  ComposedSteps steps;
  SearchSpace space = EnumerateSpace(s).value();
  ASSERT_FALSE(space.legal.empty());
  std::shuffle(space.legal.begin(), space.legal.end(), std::mt19937(1));
  if (space.legal.size() > kMost) space.legal.resize(kMost);
  for (const Configuration& c : space.legal) {
    ExpectSame(steps, ScenarioOf(s, c), Describe(c));
    if (::testing::Test::HasFailure()) return;
  }
}

Scenario Base(bool wide) {
  Scenario s = TinyLlama(8);
  s.model.layers = 8;
  s.model.hidden = wide ? 2048 : 64;
  s.model.heads = s.model.kv_heads = 4;
  s.model.head_dim = s.model.hidden / s.model.heads;
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

}  // namespace windtunnel
