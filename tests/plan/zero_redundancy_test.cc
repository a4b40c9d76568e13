// PyTorch's ZeroRedundancyOptimizer: which rank updates what, and what it keeps and broadcasts.
#include "plan/zero_redundancy.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

std::vector<Parameter> OfSizes(const std::vector<int64_t>& sizes) {
  std::vector<Parameter> parameters;
  for (const int64_t elements : sizes) {
    parameters.emplace_back();
    parameters.back().elements = elements;
  }
  return parameters;
}

using Shares = std::vector<std::vector<int>>;

TEST(ShareParameters, GivesTheLargestFirstToWhoeverHasLeast) {
  EXPECT_EQ(ShareParameters(OfSizes({10, 7, 6, 4}), 2), (Shares{{0, 3}, {1, 2}}));
  EXPECT_EQ(ShareParameters(OfSizes({1, 2, 3, 9}), 2), (Shares{{3}, {2, 1, 0}}));
}

// As Python's sort, and min() of the ranks' sizes.
TEST(ShareParameters, KeepsTheOrderOfEqualOnes) {
  EXPECT_EQ(ShareParameters(OfSizes({5, 5, 5, 5, 5}), 2), (Shares{{0, 2, 4}, {1, 3}}));
}

TEST(ShareParameters, LeavesRanksWithoutAny) {
  EXPECT_EQ(ShareParameters(OfSizes({5, 6}), 4), (Shares{{1}, {0}, {}, {}}));
}

TEST(ShareParameters, LeavesOutFrozenOnes) {
  std::vector<Parameter> parameters = OfSizes({8, 6, 4});
  parameters[0].is_frozen = true;
  EXPECT_EQ(ShareParameters(parameters, 2), (Shares{{1}, {2}}));
}

Scenario Shared(Scenario s, bool in_buckets = false) {
  s.optimizer.zero_redundancy = true;
  s.optimizer.parameters_as_bucket_view = in_buckets;
  return s;
}

// The broadcasts of a steady step, in order: root and elements.
std::vector<std::pair<int, int64_t>> BroadcastsOf(const Role& role) {
  std::vector<std::pair<int, int64_t>> broadcasts;
  for (const Op& op : role.steady.ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (collective != nullptr && collective->kind == CollectiveKind::kBroadcast)
      broadcasts.emplace_back(collective->root, collective->elements);
  }
  return broadcasts;
}

TEST(ZeroRedundancy, EveryParameterHasOneRankThatKeepsItsState) {
  for (const bool in_buckets : {false, true}) {
    const Plan plan = *CompilePlan(Shared(TinyGpt(3), in_buckets));
    ASSERT_EQ(plan.roles.size(), 3u);
    int64_t elements = 0;
    for (const Role& role : plan.roles) {
      ASSERT_EQ(role.ranks.size(), 1u);
      for (const OptimizerState& state : role.optimizer_states) elements += state.state.elements;
    }
    EXPECT_EQ(elements, 2 * plan.model.parameters);
  }
}

TEST(ZeroRedundancy, RanksBroadcastWhatTheyUpdated) {
  const Plan plan = *CompilePlan(Shared(TinyGpt(3)));
  const Shares shares = ShareParameters(plan.roles[0].parameters, 3);
  std::vector<std::pair<int, int64_t>> expected;
  for (int rank = 0; rank < 3; ++rank)
    for (const int index : shares[rank])
      expected.emplace_back(rank, plan.roles[0].parameters[index].elements);
  for (const Role& role : plan.roles) EXPECT_EQ(BroadcastsOf(role), expected) << role.name;
}

TEST(ZeroRedundancy, WithABucketViewEachRankBroadcastsOnce) {
  const Plan plan = *CompilePlan(Shared(TinyGpt(3), /*in_buckets=*/true));
  for (const Role& role : plan.roles) {
    const auto broadcasts = BroadcastsOf(role);
    ASSERT_EQ(broadcasts.size(), 3u);
    int64_t elements = 0;
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(broadcasts[rank].first, rank);
      elements += broadcasts[rank].second;
    }
    EXPECT_EQ(elements, plan.model.parameters);
  }
}

// Gradients are DDP's, whole on every rank.
TEST(ZeroRedundancy, ReducesGradientsAsDdp) {
  const auto reduced = [](const Plan& plan) {
    std::vector<int64_t> elements;
    for (const Op& op : plan.roles.back().steady.ops) {
      const auto* collective = std::get_if<Collective>(&op.kind);
      if (collective != nullptr && collective->kind == CollectiveKind::kAllReduce)
        elements.push_back(collective->elements);
    }
    return elements;
  };
  EXPECT_EQ(reduced(*CompilePlan(Shared(TinyGpt(2)))), reduced(*CompilePlan(TinyGpt(2))));
}

TEST(ZeroRedundancy, OfOneRankIsNone) {
  const Plan shared = *CompilePlan(Shared(TinyGpt(1))), plain = *CompilePlan(TinyGpt(1));
  EXPECT_EQ(shared.roles[0].name, plain.roles[0].name);
  EXPECT_EQ(shared.roles[0].steady.ops.size(), plain.roles[0].steady.ops.size());
}

TEST(ZeroRedundancy, OfTooManyRanksIsRefused) {
  const auto plan = CompilePlan(Shared(TinyGpt(512)));
  ASSERT_FALSE(plan);
  EXPECT_EQ(
      plan.error().message,
      "parallel.data.size is 512, expected at most 256 with optimizer.zero_redundancy, since the program "
      "of every rank is simulated");
}

}  // namespace
}  // namespace windtunnel
