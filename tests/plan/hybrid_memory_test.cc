// What frameworks keep of a Mamba-2 layer between its forward and its backward (StateSpace::Style).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plan/plan.h"
#include "sim/role_memory.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario Hybrid(Framework framework) {
  Scenario s = TinyLlama();
  s.model.mamba = MambaSpec{.pattern = "M-", .state = 16, .head_dim = 8, .heads = 4, .groups = 2};
  s.model.layers = 4;
  s.model.position = PositionKind::kNone;
  s.framework = framework;
  return s;
}

bool HasBuffer(const Scenario& s, const std::string& name) {
  const Plan plan = *CompilePlan(s, {.predicts = true});
  return std::any_of(plan.roles[0].buffers.begin(), plan.roles[0].buffers.end(),
                     [&](const Buffer& buffer) { return buffer.name == name; });
}

Bytes PeakOf(const Scenario& s) {
  const Plan plan = *CompilePlan(s, {.predicts = true});
  return SimulateMemory(plan.roles[0]).value().steady.requested;
}

TEST(HybridMemory, MegatronsNormKeepsItsInput) {
  EXPECT_TRUE(HasBuffer(Hybrid(Framework::kMegatronCore), "blocks.3.mixer.gated"));
  EXPECT_FALSE(HasBuffer(Hybrid(Framework::kPytorch), "blocks.3.mixer.gated"));
  EXPECT_FALSE(HasBuffer(Hybrid(Framework::kWindtunnel), "blocks.3.mixer.gated"));
}

TEST(HybridMemory, PytorchMakesTheNormsOutputAgain) {
  EXPECT_TRUE(HasBuffer(Hybrid(Framework::kPytorch), "blocks.3.mixer.again"));
  EXPECT_FALSE(HasBuffer(Hybrid(Framework::kMegatronCore), "blocks.3.mixer.again"));
}

// Megatron's layers are single letters: of M- it keeps the input of the MLP, too.
TEST(HybridMemory, MegatronKeepsTheInputsOfAllLetters) {
  // How much more a layer keeps of two sequences more: what belongs to parameters is the same.
  const auto kept = [](Framework framework) {
    Scenario s = Hybrid(framework);
    s.recompute = Recompute::kFull;
    s.optimizer.kind = OptimizerKind::kSgd;
    const auto peak = [&](int64_t layers, int64_t micro) {
      s.model.layers = layers;
      s.batch.micro = micro;
      return PeakOf(s).count();
    };
    return (peak(12, 130) - peak(12, 128) - peak(8, 130) + peak(8, 128)) / 4;
  };
  constexpr int64_t kStream = 2 * 16 * 32 * 4;  // [tokens, hidden] in fp32
  EXPECT_EQ(kept(Framework::kMegatronCore), 2 * kStream);
  EXPECT_EQ(kept(Framework::kPytorch), kStream);
}

}  // namespace
}  // namespace windtunnel
