#include "sim/core_sharing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace windtunnel {
namespace {

std::vector<double> Shares(std::vector<CoreClaim> claims) {
  ShareCore(claims);
  std::vector<double> shares;
  for (const CoreClaim& claim : claims) shares.push_back(claim.share);
  return shares;
}

void ExpectShares(const std::vector<CoreClaim>& claims, const std::vector<double>& expected) {
  const std::vector<double> shares = Shares(claims);
  ASSERT_EQ(shares.size(), expected.size());
  for (size_t i = 0; i < shares.size(); ++i) EXPECT_NEAR(shares[i], expected[i], 1e-12) << "claim " << i;
}

TEST(ShareCore, GivesALoneThreadTheWholeCore) { ExpectShares({{.weight = 1, .demand = 1}}, {1.0}); }

// x1 = x2 = L, x1 + x2 = 1.
TEST(ShareCore, SplitsEvenlyBetweenTwoThreads) { ExpectShares({{}, {}}, {0.5, 0.5}); }

// An equal split would be 1/2 each; the flow wants 0.2 only, and the thread takes the rest.
TEST(ShareCore, LeavesToOthersWhatASmallDemandDoesNotUse) {
  ExpectShares({{}, {.weight = 1, .demand = 0.2}}, {0.8, 0.2});
}

// L + L/3 = 1: L = 3/4, the flow gets 1/4 of its 0.8.
TEST(ShareCore, HoldsBackALightFlow) { ExpectShares({{}, {.weight = 1.0 / 3, .demand = 0.8}}, {0.75, 0.25}); }

// Two threads and two flows (weight 2, demands 0.1 and 0.9): at L = 1/6 the first flow wants less than 2/6
// and gets 0.1; then 2 L + 2 L = 0.9, L = 0.225: threads 0.225 each, the second flow 0.45.
TEST(ShareCore, FillsProgressively) {
  ExpectShares({{}, {}, {.weight = 2, .demand = 0.1}, {.weight = 2, .demand = 0.9}},
               {0.225, 0.225, 0.1, 0.45});
}

TEST(ShareCore, GivesEveryFlowItsDemandWhenTheyFit) {
  ExpectShares({{.weight = 1, .demand = 0.3}, {.weight = 5, .demand = 0.4}}, {0.3, 0.4});
}

RC_GTEST_PROP(ShareCore, IsMaxMinFair, ()) {
  const auto sizes = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(1, 64), rc::gen::inRange(0, 101)));
  std::vector<CoreClaim> claims;
  for (const auto& [weight, demand] : sizes)
    claims.push_back({.weight = weight / 8.0, .demand = demand / 100.0});
  ShareCore(claims);
  double used = 0, wanted = 0, level = 0;
  for (const CoreClaim& claim : claims) {
    RC_ASSERT(claim.share >= 0);
    RC_ASSERT(claim.share <= claim.demand);
    used += claim.share;
    wanted += claim.demand;
    level = std::max(level, claim.share / claim.weight);
  }
  // Nothing is wasted, and a claim that got less than its demand got as much per weight as any other.
  RC_ASSERT(std::abs(used - std::min(wanted, 1.0)) < 1e-9);
  for (const CoreClaim& claim : claims) {
    if (claim.share < claim.demand) RC_ASSERT(claim.share / claim.weight > level - 1e-9);
  }
}

}  // namespace
}  // namespace windtunnel
