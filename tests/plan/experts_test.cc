// What a mixture of experts sends and computes, whose gradients are added up with whose, and how its size is counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario Experts(Scenario s, int64_t expert_ranks,
                 ExpertsSpec spec = {.count = 4, .top_k = 2, .capacity_factor = 1.5}) {
  s.model.experts = spec;
  s.parallel.expert.size = expert_ranks;
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}

template <typename T, typename Take>
int Count(const Plan& plan, Take take) {
  const std::vector<Op>& ops = plan.roles[0].steady.ops;
  return static_cast<int>(std::count_if(ops.begin(), ops.end(), [&](const Op& op) {
    const T* kind = std::get_if<T>(&op.kind);
    return kind != nullptr && take(op, *kind);
  }));
}

// 32 tokens x 2 of 4 experts: 16 an expert and rank on average, room for 24.
TEST(Experts, KeepRoomByTheCapacityFactor) {
  const Plan plan = *CompilePlan(Experts(TinyLlama(2), 2));
  // Forward: up and down of the rank's 2 experts, each with room for both ranks' 24.
  EXPECT_EQ(Count<GroupedGemm>(plan,
                               [](const Op& op, const GroupedGemm& g) {
                                 return op.layer == 0 && op.phase == Phase::kForward && g.groups == 2 &&
                                        g.m == 48;
                               }),
            2);
  EXPECT_EQ(Count<GroupedGemm>(plan, [](const Op&, const GroupedGemm&) { return true; }), 2 * 2 * 3);
}

TEST(Experts, SendTokensThereAndBackForwardAndBackward) {
  const Plan plan = *CompilePlan(Experts(TinyLlama(2), 2));
  for (Phase phase : {Phase::kForward, Phase::kBackward}) {
    EXPECT_EQ(Count<Collective>(plan,
                                [&](const Op& op, const Collective& c) {
                                  return op.layer == 0 && op.phase == phase &&
                                         c.kind == CollectiveKind::kAllToAll && c.elements == 4 * 24 * 32;
                                }),
              2);
  }
  const Plan whole = *CompilePlan(Experts(TinyLlama(2), 1));
  EXPECT_EQ(Count<Collective>(
                whole, [](const Op&, const Collective& c) { return c.kind == CollectiveKind::kAllToAll; }),
            0);
}

// Without a limit nothing is padded; the busiest expert's rank decides: 2 ranks x 16 tokens x (2 + 1) for its two experts.
TEST(Experts, WithoutALimitHaveTheBusiestRanksLoad) {
  const ExpertsSpec spec{.count = 4, .top_k = 2, .capacity_factor = 0, .imbalance = 2};
  const Plan plan = *CompilePlan(Experts(TinyLlama(2), 2, spec));
  EXPECT_EQ(Count<GroupedGemm>(plan,
                               [](const Op& op, const GroupedGemm& g) {
                                 return op.layer == 0 && op.phase == Phase::kForward && g.m == 2 * 16 * 3 / 2;
                               }),
            2);
  EXPECT_EQ(Count<DispatchTokens>(plan, [](const Op&, const DispatchTokens& d) { return d.rows == 32 * 2; }),
            2);
}

TEST(Experts, GradientsAreAddedUpOverTheRanksThatHaveThem) {
  const Plan plan = *CompilePlan(Experts(TinyLlama(4), 2));
  const Role& role = plan.roles[0];
  for (const Op& op : role.steady.ops) {
    const auto* c = std::get_if<Collective>(&op.kind);
    if (c == nullptr || c->kind != CollectiveKind::kAllReduce || !op.name.starts_with("bucket")) continue;
    ASSERT_FALSE(op.parameters.empty());
    const bool of_experts = role.parameters[op.parameters.front()].is_of_experts();
    for (int parameter : op.parameters) EXPECT_EQ(role.parameters[parameter].is_of_experts(), of_experts);
    EXPECT_EQ(plan.axes[role.streams[op.stream].axis].size(), of_experts ? 2 : 4);
  }
  for (const Axis& axis : plan.axes) {
    if (axis.name == "expert") {
      EXPECT_EQ(axis.GroupOf(3).ranks, (std::vector<int>{2, 3}));
    }
    if (axis.name == "expert data") {
      EXPECT_EQ(axis.GroupOf(3).ranks, (std::vector<int>{1, 3}));
    }
  }
}

// Mixtral 8x7B has 46,702,792,704 parameters, of which a token sees 12,879,925,248 (published as 46.7B and 12.9B).
TEST(Experts, CountTheParametersThatATokenSees) {
  Scenario s = TinyLlama();
  s.model.layers = 32;
  s.model.hidden = 4096;
  s.model.heads = 32;
  s.model.kv_heads = 8;
  s.model.ffn = 14336;
  s.model.vocab = 32000;
  s.model.seq_len = 4096;
  s = Experts(s, 1, {.count = 8, .top_k = 2});
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(plan.model.parameters, 46'702'792'704);
  EXPECT_DOUBLE_EQ(plan.model.flops_per_token.count(), 6.0 * 12'879'925'248 + 12.0 * 32 * 4096 * 4096);
}

void ExpectRefused(const Scenario& s, const std::string& key) {
  const auto plan = CompilePlan(s);
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find(key), std::string::npos) << plan.error().message;
}

TEST(Experts, RefusesWhatCannotBeShared) {
  ExpectRefused(Experts(TinyLlama(2), 2, {.count = 3, .top_k = 1}), "parallel.expert.size");
  Scenario s = Experts(TinyLlama(2), 2);
  s.model.experts.reset();
  ExpectRefused(s, "parallel.expert.size");
}

}  // namespace
}  // namespace windtunnel
