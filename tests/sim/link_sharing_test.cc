#include "sim/link_sharing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace windtunnel {
namespace {

// Flows of one transfer each.
std::vector<NetworkFlow> FlowsOf(const std::vector<LinkDemands>& of_flows) {
  std::vector<NetworkFlow> flows;
  for (const LinkDemands& demands : of_flows) {
    double largest = 0;
    for (const LinkDemand& demand : demands) largest = std::max(largest, demand.share);
    flows.push_back({demands, largest});
  }
  return flows;
}

// The speeds of the flows when all are in flight at once.
std::map<int32_t, double> SpeedsOf(const std::vector<NetworkFlow>& flows, int32_t links) {
  LinkSharing sharing(flows, links);
  for (size_t i = 0; i < flows.size(); ++i) sharing.Start(static_cast<int32_t>(i), static_cast<int32_t>(i));
  std::map<int32_t, double> speeds;
  for (const LinkSharing::Change& change : sharing.Solve()) speeds[change.transfer] = change.speed;
  return speeds;
}
std::map<int32_t, double> SpeedsOf(const std::vector<LinkDemands>& flows, int32_t links) {
  return SpeedsOf(FlowsOf(flows), links);
}

TEST(LinkSharing, WhoIsAloneGoesAtFullSpeed) { EXPECT_EQ(SpeedsOf({{{0, 1.0}}}, 1)[0], 1); }

TEST(LinkSharing, TwoThatSaturateALinkGoAtHalfTheirSpeed) {
  auto speeds = SpeedsOf({{{0, 1.0}}, {{0, 1.0}}}, 1);
  EXPECT_EQ(speeds[0], 0.5);
  EXPECT_EQ(speeds[1], 0.5);
}

// (1 - 0.2) / 2.
TEST(LinkSharing, WhoWantsLittleHasIt) {
  auto speeds = SpeedsOf({{{0, 1.0}}, {{0, 1.0}}, {{0, 0.2}}}, 1);
  EXPECT_NEAR(speeds[0], 0.4, 1e-12);
  EXPECT_NEAR(speeds[1], 0.4, 1e-12);
  EXPECT_EQ(speeds[2], 1);
}

// Thirds for all.
TEST(LinkSharing, WhoWantsMoreThanAFairShareHasThat) {
  auto speeds = SpeedsOf({{{0, 1.0}}, {{0, 0.5}}, {{0, 0.4}}}, 1);
  EXPECT_NEAR(speeds[0], 1 / 3.0, 1e-12);
  EXPECT_NEAR(speeds[1], 2 / 3.0, 1e-12);
  EXPECT_NEAR(speeds[2], 2.5 / 3.0, 1e-12);
}

// The third flow shares link 1 with three others and gets a quarter of it, so it uses 0.05 of link 0 and
// leaves 0.95 of that to two flows.
TEST(LinkSharing, WhatOneHeldBackElsewhereLeavesGoesToTheOthers) {
  auto speeds =
      SpeedsOf({{{0, 1.0}}, {{0, 1.0}}, {{0, 0.2}, {1, 1.0}}, {{1, 1.0}}, {{1, 1.0}}, {{1, 1.0}}}, 2);
  EXPECT_NEAR(speeds[0], 0.475, 1e-12);
  EXPECT_NEAR(speeds[1], 0.475, 1e-12);
  EXPECT_NEAR(speeds[2], 0.25, 1e-12);
}

TEST(LinkSharing, AFlowThatStandsForAClassIsAsItsTransfers) {
  // Eight transfers that want an eighth of the link each; then a quarter each, together twice the link.
  EXPECT_EQ(SpeedsOf(std::vector<NetworkFlow>{{{{0, 1.0}}, 0.125}}, 1)[0], 1);
  EXPECT_EQ(SpeedsOf(std::vector<NetworkFlow>{{{{0, 2.0}}, 0.25}}, 1)[0], 0.5);
  // Beside a transfer that wants all of the link, each of the nine gets a ninth: the one goes at a ninth of
  // its speed, the eight at eight ninths.
  const NetworkFlow one{{{0, 1.0}}, 1}, eight{{{0, 1.0}}, 0.125};
  auto folded = SpeedsOf(std::vector<NetworkFlow>{one, eight}, 1);
  std::vector<LinkDemands> single(9, {{0, 0.125}});
  single[0] = {{0, 1.0}};
  auto unfolded = SpeedsOf(single, 1);
  EXPECT_NEAR(folded[0], 1 / 9.0, 1e-12);
  EXPECT_NEAR(folded[1], 8 / 9.0, 1e-12);
  for (int i = 0; i < 9; ++i) EXPECT_NEAR(unfolded[i], folded[i == 0 ? 0 : 1], 1e-12);
}

// A transfer that takes very little of a link that others use up does not stand still.
TEST(LinkSharing, WhoTakesNextToNothingOfALinkGoesOn) {
  for (const double little : {1e-6, 1e-9, 1e-11, 1e-12, 1e-13, 1e-16, 1e-20}) {
    const std::vector<NetworkFlow> flows = {{{{0, 1.0}}, 0.5}, {{{0, little}, {1, 1.0}}, 1}};
    auto speeds = SpeedsOf(flows, 2);
    EXPECT_NEAR(speeds[0], 1, 1e-5) << little;
    EXPECT_GE(speeds[1], 0.499) << little;
  }
  // Ten thousand flows share a link, and one more needs only a thousandth of a millionth of it.
  std::vector<NetworkFlow> flows(10'001, {{{0, 1e-4}}, 1e-4});
  flows.back() = {{{0, 1e-9}, {1, 1.0}}, 1};
  EXPECT_GT(SpeedsOf(flows, 2)[10'000], 0.9e-4);
}

TEST(LinkSharing, OnlyThoseThatShareLinksAreSolvedAgain) {
  LinkSharing sharing(FlowsOf({{{0, 1.0}}, {{0, 1.0}, {1, 0.5}}, {{2, 1.0}}}), 3);
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

// No link is overfull. Every flow is at full speed or crosses a full link on which no other flow's share (of
// the link that it takes the most of) is larger.
RC_GTEST_PROP(LinkSharingProperties, SharesAreMaxMinFair, ()) {
  const int32_t links = *rc::gen::inRange(1, 6);
  std::vector<NetworkFlow> flows(*rc::gen::inRange(1, 12));
  for (NetworkFlow& flow : flows) {
    const double transfers = *rc::gen::inRange(1, 9);
    for (int32_t link = 0; link < links; ++link) {
      if (*rc::gen::arbitrary<bool>()) flow.demands.push_back({link, *rc::gen::inRange(1, 200) / 100.0});
    }
    for (const LinkDemand& demand : flow.demands)
      flow.largest = std::max(flow.largest, demand.share / transfers);
  }
  auto speeds = SpeedsOf(flows, links);
  std::vector<double> used(links, 0), largest(links, 0);
  for (size_t i = 0; i < flows.size(); ++i) {
    for (const LinkDemand& demand : flows[i].demands) {
      used[demand.link] += demand.share * speeds[i];
      largest[demand.link] = std::max(largest[demand.link], flows[i].largest * speeds[i]);
    }
  }
  for (double of_link : used) RC_ASSERT(of_link <= 1 + 1e-9);
  for (size_t i = 0; i < flows.size(); ++i) {
    if (flows[i].demands.empty() || speeds[i] == 1) continue;
    const double share = flows[i].largest * speeds[i];
    const bool is_held =
        std::any_of(flows[i].demands.begin(), flows[i].demands.end(), [&](const LinkDemand& demand) {
          return used[demand.link] >= 1 - 1e-9 && share >= largest[demand.link] - 1e-9;
        });
    RC_ASSERT(is_held);
  }
}

}  // namespace
}  // namespace windtunnel
