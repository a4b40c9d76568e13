#include "sim/link_sharing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace windtunnel {
namespace {

// The speeds of all flows in flight at once, one transfer each.
std::map<int32_t, double> SpeedsOf(const std::vector<LinkDemands>& flows, int32_t links) {
  LinkSharing sharing(flows, links);
  for (size_t i = 0; i < flows.size(); ++i) sharing.Start(static_cast<int32_t>(i), static_cast<int32_t>(i));
  std::map<int32_t, double> speeds;
  for (const LinkSharing::Change& change : sharing.Solve()) speeds[change.transfer] = change.speed;
  return speeds;
}

TEST(LinkSharing, WhoIsAloneGoesAtFullSpeed) { EXPECT_EQ(SpeedsOf({{{0, 1.0}}}, 1)[0], 1); }

TEST(LinkSharing, TwoThatSaturateALinkGoAtHalfTheirSpeed) {
  auto speeds = SpeedsOf({{{0, 1.0}}, {{0, 1.0}}}, 1);
  EXPECT_EQ(speeds[0], 0.5);
  EXPECT_EQ(speeds[1], 0.5);
}

// 1 / (1 + 1 + 0.2).
TEST(LinkSharing, SpeedsAreEqualWhateverIsTaken) {
  auto speeds = SpeedsOf({{{0, 1.0}}, {{0, 1.0}}, {{0, 0.2}}}, 1);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(speeds[i], 1 / 2.2, 1e-12);
}

// The third shares link 1 with three others: a quarter each. It leaves 0.95 of link 0 to two.
TEST(LinkSharing, WhatOneHeldBackElsewhereLeavesGoesToTheOthers) {
  auto speeds =
      SpeedsOf({{{0, 1.0}}, {{0, 1.0}}, {{0, 0.2}, {1, 1.0}}, {{1, 1.0}}, {{1, 1.0}}, {{1, 1.0}}}, 2);
  EXPECT_NEAR(speeds[0], 0.475, 1e-12);
  EXPECT_NEAR(speeds[1], 0.475, 1e-12);
  EXPECT_NEAR(speeds[2], 0.25, 1e-12);
}

// Eight transfers of a class, an eighth of the link each, and as many with a quarter.
TEST(LinkSharing, AFlowThatStandsForAClassMayTakeMoreThanALink) {
  EXPECT_EQ(SpeedsOf({{{0, 1.0}}}, 1)[0], 1);
  EXPECT_EQ(SpeedsOf({{{0, 2.0}}}, 1)[0], 0.5);
}

TEST(LinkSharing, OnlyThoseThatShareLinksAreSolvedAgain) {
  LinkSharing sharing({{{0, 1.0}}, {{0, 1.0}, {1, 0.5}}, {{2, 1.0}}}, 3);
  sharing.Start(10, 0);
  sharing.Start(12, 2);
  EXPECT_EQ(sharing.Solve().size(), 2u);
  sharing.Start(11, 1);
  EXPECT_EQ(sharing.Solve().size(), 2u);
  sharing.Finish(10, 0);
  const auto& changes = sharing.Solve();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].transfer, 11);
  EXPECT_EQ(changes[0].speed, 1);
  EXPECT_TRUE(sharing.Solve().empty());
}

// No link is overfull, and everyone is at full speed or crosses a full link on which nobody is faster.
RC_GTEST_PROP(LinkSharingProperties, SharesAreMaxMinFair, ()) {
  const int32_t links = *rc::gen::inRange(1, 6);
  std::vector<LinkDemands> flows(*rc::gen::inRange(1, 12));
  for (LinkDemands& demands : flows) {
    for (int32_t link = 0; link < links; ++link) {
      if (*rc::gen::arbitrary<bool>()) demands.push_back({link, *rc::gen::inRange(1, 200) / 100.0});
    }
  }
  auto speeds = SpeedsOf(flows, links);
  std::vector<double> used(links, 0), fastest(links, 0);
  for (size_t i = 0; i < flows.size(); ++i) {
    for (const LinkDemand& demand : flows[i]) {
      used[demand.link] += demand.share * speeds[i];
      fastest[demand.link] = std::max(fastest[demand.link], speeds[i]);
    }
  }
  for (double of_link : used) RC_ASSERT(of_link <= 1 + 1e-9);
  for (size_t i = 0; i < flows.size(); ++i) {
    if (flows[i].empty() || speeds[i] == 1) continue;
    const bool is_held = std::any_of(flows[i].begin(), flows[i].end(), [&](const LinkDemand& demand) {
      return used[demand.link] >= 1 - 1e-9 && speeds[i] >= fastest[demand.link] - 1e-9;
    });
    RC_ASSERT(is_held);
  }
}

}  // namespace
}  // namespace windtunnel
