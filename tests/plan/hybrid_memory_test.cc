// What frameworks keep of a Mamba-2 layer, and of a gated delta network, between its forward and its backward
// (StateSpace::Style, KeptByChunks).
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

Scenario DeltaNet(Framework framework) {
  Scenario s = TinyLlama();
  s.model.delta_net =
      DeltaNetSpec{.pattern = "G-", .key_heads = 2, .value_heads = 4, .key_dim = 16, .value_dim = 8};
  s.model.layers = 4;
  s.framework = framework;
  return s;
}

// By hand, numbers of a token: a head's queries, keys and values of 16, 16 and 8, the inverse of its chunk
// (64) and three more; in Megatron-Core also the normalised heads before they are repeated (2 x 2 x 16) and
// the norm's output (32), in transformers what is convolved (96).
TEST(HybridMemory, FrameworksKeepWhatChunksNeedOfGatedDeltaNetworks) {
  const auto kept = [](Framework framework) {
    const Plan plan = *CompilePlan(DeltaNet(framework), {.predicts = true});
    for (const Buffer& buffer : plan.roles[0].buffers)
      if (buffer.name == "blocks.3.mixer.by_chunks") return buffer.bytes.count();
    return int64_t{0};
  };
  const Scenario s = DeltaNet(Framework::kPytorch);
  const int64_t tokens = s.batch.micro * s.model.seq_len, heads = 4 * (2 * 16 + 8 + 64 + 3);
  EXPECT_EQ(kept(Framework::kMegatronCore), 4 * tokens * (heads + 2 * 2 * 16 + 32));
  EXPECT_EQ(kept(Framework::kPytorch), 4 * tokens * (heads + 96));
  EXPECT_EQ(kept(Framework::kWindtunnel), 0);
}

// transformers makes the two numbers of each head by a layer of their own.
TEST(HybridMemory, PytorchHasTwoProjectionsInAGatedDeltaNetwork) {
  const auto has = [](Framework framework, const char* name) {
    const Plan plan = *CompilePlan(DeltaNet(framework), {.predicts = true});
    return std::any_of(plan.roles[0].parameters.begin(), plan.roles[0].parameters.end(),
                       [&](const Parameter& p) { return p.name == name; });
  };
  EXPECT_TRUE(has(Framework::kPytorch, "blocks.3.mixer.in_proj_ba.weight"));
  EXPECT_TRUE(has(Framework::kMegatronCore, "blocks.3.mixer.in_proj.weight"));
  EXPECT_FALSE(has(Framework::kMegatronCore, "blocks.3.mixer.in_proj_ba.weight"));
}

}  // namespace
}  // namespace windtunnel
