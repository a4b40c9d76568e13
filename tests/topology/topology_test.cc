#include "topology/topology.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace windtunnel {
namespace {

ClusterSpec Dgx(int64_t nodes, const std::string& preset = "dgx-h100") {
  ClusterSpec cluster;
  cluster.nodes = nodes;
  cluster.devices_per_node = 8;
  cluster.topology.preset = preset;
  return cluster;
}

Topology Make(const ClusterSpec& cluster) {
  auto topology = MakeTopology(cluster, "nvlink4");
  EXPECT_TRUE(topology) << topology.error().message;
  return *std::move(topology);
}

// The route as text, "node0.gpu0 node0.nvswitch node0.gpu1", for pairs with a single route.
std::string WayOf(const Topology& topology, int from, int to) {
  const NetworkRoute route = RouteFinder(topology).Between(from, to).value();
  std::string way;
  for (const Hop& hop : route.hops) {
    const DirectedLink& link = topology.links()[hop.link];
    if (way.empty()) way = topology.vertices()[link.from].name;
    way += " " + topology.vertices()[link.to].name;
  }
  return way;
}

std::string ErrorOf(const ClusterSpec& cluster) {
  const auto topology = MakeTopology(cluster, "nvlink4");
  return topology ? "" : topology.error().message;
}

TEST(Topology, DevicesOfANodeTalkOverItsSwitch) {
  EXPECT_EQ(WayOf(Make(Dgx(2)), 9, 14), "node1.gpu1 node1.nvswitch node1.gpu6");
}

TEST(Topology, ADevicesTrafficLeavesByItsOwnCard) {
  EXPECT_EQ(WayOf(Make(Dgx(2)), 3, 11), "node0.gpu3 node0.nic3 leaf3 node1.nic3 node1.gpu3");
  EXPECT_EQ(WayOf(Make(Dgx(2)), 3, 12), "node0.gpu3 node0.nic3 leaf3 spine leaf4 node1.nic4 node1.gpu4");
}

// 8 devices share 4 cards, and all cards of 8 nodes share a leaf switch.
TEST(Topology, DevicesShareCardsWhereThereAreFewer) {
  const Topology topology = Make(Dgx(16, "omnipath-4x100g"));
  EXPECT_EQ(WayOf(topology, 3, 8 + 6), "node0.gpu3 node0.nic1 leaf0 node1.nic3 node1.gpu6");
  EXPECT_EQ(WayOf(topology, 0, 8 * 8), "node0.gpu0 node0.nic0 leaf0 spine leaf1 node8.nic0 node8.gpu0");
  // Two devices that share a card do not talk over it.
  EXPECT_EQ(WayOf(topology, 0, 1), "node0.gpu0 node0.nvswitch node0.gpu1");
}

// A leaf of 32 nodes' cards of 50 GB/s has 1600 GB/s to the spine; with 4 to 1 oversubscription it has 400.
TEST(Topology, OversubscriptionNarrowsTheSpine) {
  ClusterSpec cluster = Dgx(64);
  cluster.topology.oversubscription = 4;
  const Topology topology = Make(cluster);
  int leaves = 0;
  for (const DirectedLink& link : topology.links()) {
    if (topology.vertices()[link.to].name != "spine") continue;
    EXPECT_NEAR(link.bandwidth / GBps(400), 1, 1e-9);
    ++leaves;
  }
  EXPECT_EQ(leaves, 16);
}

// Each end adds half of the cards' own latency.
TEST(Topology, LatencyAddsUpAlongTheWay) {
  ClusterSpec cluster = Dgx(2);
  cluster.network.inter_node = {.kind = "roce", .gbits_per_nic = 400, .latency_us = 3};
  const Topology topology = Make(cluster);
  EXPECT_EQ(RouteFinder(topology).Between(0, 8)->latency, Microseconds(3));
  EXPECT_EQ(RouteFinder(topology).Between(0, 1)->latency, Duration());
}

TEST(Topology, ASlowLinkIsSlowInBothDirections) {
  ClusterSpec cluster = Dgx(2);
  cluster.slow_link = {.from = "node1", .to = "leaf5", .factor = 0.5};
  const Topology topology = Make(cluster);
  int slow = 0;
  for (const DirectedLink& link : topology.links()) {
    const std::string& from = topology.vertices()[link.from].name;
    if (!from.starts_with("leaf")) continue;
    const bool is_slow = from == "leaf5" && topology.vertices()[link.to].name == "node1.nic5";
    if (topology.vertices()[link.to].name == "spine") continue;
    EXPECT_NEAR(link.bandwidth / GBps(50), is_slow ? 0.5 : 1, 1e-9) << from;
    slow += is_slow ? 1 : 0;
  }
  EXPECT_EQ(slow, 1);
  cluster.slow_link->to = "leaf99";
  EXPECT_NE(ErrorOf(cluster).find("no link leads from 'node1' to 'leaf99'"), std::string::npos);
}

// ---- spelled out

// Two devices joined by two switches.
ClusterSpec TwoWays() {
  ClusterSpec cluster;
  cluster.devices_per_node = 2;
  cluster.topology.nodes = {{"a", "device"}, {"b", "device"}, {"s", "switch"}, {"t", "switch"}};
  for (const char* device : {"a", "b"})
    for (const char* fabric : {"s", "t"}) cluster.topology.links.push_back({device, fabric, 10, 1});
  return cluster;
}

TEST(Topology, TrafficSplitsOverWaysOfTheSameLength) {
  const Topology topology = Make(TwoWays());
  const NetworkRoute route = RouteFinder(topology).Between(0, 1).value();
  ASSERT_EQ(route.hops.size(), 4u);
  for (const Hop& hop : route.hops) EXPECT_EQ(hop.share, 0.5);
  EXPECT_EQ(route.latency, Microseconds(2));
}

TEST(Topology, WhatIsNotConnectedIsAnErrorThatNamesIt) {
  ClusterSpec cluster = TwoWays();
  cluster.topology.nodes.push_back({"lonely", "switch"});
  EXPECT_NE(ErrorOf(cluster).find("not connected: no links lead from 'a' to 'lonely'"), std::string::npos)
      << ErrorOf(cluster);
}

TEST(Topology, DevicesThatDoNotFitTheMeshAreAnError) {
  ClusterSpec cluster = TwoWays();
  cluster.devices_per_node = 4;
  EXPECT_NE(ErrorOf(cluster).find("has 2 devices, expected 4"), std::string::npos) << ErrorOf(cluster);
}

TEST(Topology, ALinkWithoutABandwidthIsAnError) {
  ClusterSpec cluster = TwoWays();
  cluster.topology.links[2].gbytes_per_s = 0;
  EXPECT_NE(ErrorOf(cluster).find("'b' to 's' has no bandwidth"), std::string::npos) << ErrorOf(cluster);
}

TEST(Topology, AnUnknownPresetIsAnErrorThatOffersTheKnownOnes) {
  EXPECT_NE(ErrorOf(Dgx(1, "dgx-h300")).find("expected dgx-a100, dgx-h100"), std::string::npos);
}

TEST(Topology, APresetThatLeavesTheNetworkOpenAsksForIt) {
  EXPECT_NE(ErrorOf(Dgx(2, "rail-fat-tree")).find("cluster.network.inter_node"), std::string::npos);
}

TEST(Topology, NoDevicePassesOnWhatIsNotItsOwn) {
  ClusterSpec cluster;
  cluster.devices_per_node = 3;
  cluster.topology.nodes = {{"a", "device"}, {"b", "device"}, {"c", "device"}};
  cluster.topology.links = {{"a", "b", 10, 0}, {"b", "c", 10, 0}};
  const Topology topology = Make(cluster);
  EXPECT_TRUE(RouteFinder(topology).Between(0, 1));
  const auto route = RouteFinder(topology).Between(0, 2);
  ASSERT_FALSE(route);
  EXPECT_NE(route.error().message.find("every way from 'a' to 'c'"), std::string::npos)
      << route.error().message;
}

// All that leaves the sender arrives at the receiver, and nothing is lost in between.
RC_GTEST_PROP(TopologyProperties, RoutesConserveTraffic, ()) {
  ClusterSpec cluster =
      Dgx(*rc::gen::inRange(1, 6), *rc::gen::element<std::string>("dgx-a100", "dgx-h100", "ethernet-4x100g"));
  cluster.topology.nodes_per_leaf = *rc::gen::inRange(1, 4);
  const Topology topology = Make(cluster);
  const int from = *rc::gen::inRange(0, topology.devices()), to = *rc::gen::inRange(0, topology.devices());
  if (from == to) return;
  std::map<int32_t, double> balance;
  const NetworkRoute route = RouteFinder(topology).Between(from, to).value();
  for (const Hop& hop : route.hops) {
    balance[topology.links()[hop.link].from] -= hop.share;
    balance[topology.links()[hop.link].to] += hop.share;
  }
  double sent = 0, received = 0;
  for (const auto& [vertex, amount] : balance) {
    if (amount > 1e-9) received += amount;
    if (amount < -1e-9) sent -= amount;
  }
  RC_ASSERT(sent > 1 - 1e-9 && sent < 1 + 1e-9);
  RC_ASSERT(received > 1 - 1e-9 && received < 1 + 1e-9);
}

}  // namespace
}  // namespace windtunnel
