#include "topology/topology.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "topology/link_rates.h"

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
  auto topology = MakeTopology(cluster, {"nvlink4", GBps(52.8)});
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
  const auto topology = MakeTopology(cluster, {"nvlink4", GBps(52.8)});
  return topology ? "" : topology.error().message;
}

TEST(Topology, DevicesOfANodeTalkOverItsSwitch) {
  EXPECT_EQ(WayOf(Make(Dgx(2)), 9, 14), "node1.gpu1 node1.nvswitch node1.gpu6");
}

TEST(Topology, ADevicesTrafficLeavesByItsOwnCard) {
  EXPECT_EQ(WayOf(Make(Dgx(2)), 3, 11), "node0.gpu3 node0.nic3 leaf3 node1.nic3 node1.gpu3");
  EXPECT_EQ(WayOf(Make(Dgx(2)), 3, 12), "node0.gpu3 node0.nic3 leaf3 spine leaf4 node1.nic4 node1.gpu4");
}

// A device that can fill 52.8 GB/s of four cards gets no less from faster cards.
TEST(Topology, FasterCardsAreNoSlower) {
  NetworkSpec network;
  network.nics_per_node = 4;
  Bandwidth before;
  for (double gbits = 100; gbits <= 800; gbits += 5) {
    network.inter_node = {.kind = "infiniband", .gbits_per_nic = gbits, .latency_us = {}};
    const NicRates card = CardRates(network, 1, GBps(52.8)).value();
    const Bandwidth now = AchievedOfDevice(card, network, 4, GBps(52.8));
    EXPECT_GE(now, before * (1 - 1e-12)) << gbits;
    before = now;
  }
}

// Eight cards of 400 Gb/s are 400 GB/s a node.
TEST(Topology, TheBandwidthOfANodeIsThatOfItsCardsTogether) {
  NetworkSpec by_card, by_node;
  by_card.nics_per_node = by_node.nics_per_node = 8;
  by_card.inter_node = {.kind = "infiniband", .gbits_per_nic = 400, .latency_us = {}};
  by_node.inter_node = {.kind = "infiniband", .gbytes_per_s = 400, .latency_us = {}};
  EXPECT_EQ(NodeBandwidth(by_card), GBps(400));
  EXPECT_EQ(NodeBandwidth(by_node), GBps(400));
  EXPECT_EQ(CardRates(by_node, 8, GBps(52.8))->nominal, GBps(50));
  EXPECT_EQ(CardRates(by_node, 8, GBps(52.8))->rate, CardRates(by_card, 8, GBps(52.8))->rate);
  ClusterSpec cluster = Dgx(2, "rail-fat-tree");
  cluster.network = by_node;
  const Topology topology = Make(cluster);
  for (size_t i = 0; i < topology.links().size(); ++i) {
    const DirectedLink& link = topology.links()[i];
    const bool leaves_node = topology.vertices()[link.from].kind == VertexKind::kNic &&
                             topology.vertices()[link.to].kind == VertexKind::kSwitch;
    if (leaves_node) {
      EXPECT_EQ(link.bandwidth, GBps(50));
    }
  }
}

double NominalAmong(const LinkRates& link, int ranks) { return link.AmongRanks(ranks).nominal / GBps(1); }

// A V100's six links of 25 GB/s.
TEST(LinkRates, FewNeighboursInAMeshHaveFewLinks) {
  const LinkRates mesh = *IntraNodeRates({}, "nvlink2_mesh"), switched = *IntraNodeRates({}, "nvlink2");
  EXPECT_EQ(NominalAmong(mesh, 2), 25);
  EXPECT_EQ(NominalAmong(mesh, 3), 50);
  EXPECT_EQ(NominalAmong(mesh, 4), 100);
  EXPECT_EQ(mesh.AmongRanks(8), mesh);
  EXPECT_EQ(switched.AmongRanks(2), switched);
  EXPECT_EQ(mesh.ring, switched.ring);
}

TEST(LinkRates, WhatJoinsNoDevicesIsAnErrorThatOffersWhatDoes) {
  const auto rates = IntraNodeRates({}, "loopback");
  ASSERT_FALSE(rates);
  EXPECT_EQ(rates.error().message,
            "cluster.network.intra_node is 'loopback', expected nvlink2, nvlink2_mesh, nvlink3, nvlink3x8, "
            "nvlink4, nvlink4x8, nvlink5, pcie3, pcie4, pcie5 or {gbytes_per_s: …} between accelerators");
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

// Not of each level's slowest link, which may be on different ways.
TEST(Topology, LatencyIsThatOfTheLongestWay) {
  ClusterSpec cluster = TwoWays();
  for (TopologyLink& link : cluster.topology.links)
    link.latency_us = link.to == (link.from == "a" ? "s" : "t") ? 10 : 2;
  EXPECT_EQ(RouteFinder(Make(cluster)).Between(0, 1)->latency, Microseconds(12));
  for (TopologyLink& link : cluster.topology.links) link.latency_us = link.to == "s" ? 10 : 2;
  EXPECT_EQ(RouteFinder(Make(cluster)).Between(0, 1)->latency, Microseconds(20));
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

// Switches at random, some with several links between them, and devices at some of them.
ClusterSpec AnySwitches() {
  ClusterSpec cluster;
  const int switches = *rc::gen::inRange(1, 9), devices = *rc::gen::inRange(2, 6);
  cluster.devices_per_node = devices;
  for (int i = 0; i < switches; ++i) {
    cluster.topology.nodes.push_back({"s" + std::to_string(i), "switch"});
    if (i > 0)
      cluster.topology.links.push_back({"s" + std::to_string(i - 1), "s" + std::to_string(i), 10, 1});
  }
  const auto any_switch = [&] { return "s" + std::to_string(*rc::gen::inRange(0, switches)); };
  for (int i = *rc::gen::inRange(0, 3 * switches); i > 0; --i) {
    const std::string a = any_switch(), b = any_switch();
    if (a != b) cluster.topology.links.push_back({a, b, 10, 1});
  }
  for (int i = 0; i < devices; ++i) {
    const std::string device = "d" + std::to_string(i);
    cluster.topology.nodes.push_back({device, "device"});
    for (int links = *rc::gen::inRange(1, 4); links > 0; --links)
      cluster.topology.links.push_back({device, any_switch(), 10, 1});
  }
  return cluster;
}

// The share of each link, straight from the definition: from the sender on, each vertex splits what it has
// evenly over its links to vertices that are one link closer to the receiver.
std::map<int32_t, double> EvenSplit(const Topology& topology, int32_t from, int32_t to) {
  const auto& vertices = topology.vertices();
  const auto count = static_cast<int32_t>(vertices.size());
  std::vector<int> distance(vertices.size(), count);
  distance[to] = 0;
  for (int32_t round = 0; round < count; ++round) {
    for (const DirectedLink& link : topology.links()) {
      if (link.from != from && vertices[link.from].kind == VertexKind::kDevice) continue;
      distance[link.from] = std::min(distance[link.from], distance[link.to] + 1);
    }
  }
  std::vector<double> has(vertices.size(), 0);
  has[from] = 1;
  std::map<int32_t, double> shares;
  for (int left = distance[from]; left > 0; --left) {
    for (int32_t vertex = 0; vertex < count; ++vertex) {
      if (distance[vertex] != left || has[vertex] == 0) continue;
      std::vector<int32_t> ways;
      for (size_t i = 0; i < topology.links().size(); ++i) {
        const DirectedLink& link = topology.links()[i];
        if (link.from == vertex && distance[link.to] == left - 1) ways.push_back(static_cast<int32_t>(i));
      }
      for (const int32_t way : ways) {
        shares[way] += has[vertex] / static_cast<double>(ways.size());
        has[topology.links()[way].to] += has[vertex] / static_cast<double>(ways.size());
      }
    }
  }
  return shares;
}

RC_GTEST_PROP(TopologyProperties, TrafficSplitsEvenlyOverShortestWays, ()) {
  const auto topology = MakeTopology(AnySwitches(), {"nvlink4", GBps(52.8)});
  RC_ASSERT(static_cast<bool>(topology));
  std::vector<int32_t> devices;
  for (size_t v = 0; v < topology->vertices().size(); ++v)
    if (topology->vertices()[v].kind == VertexKind::kDevice) devices.push_back(static_cast<int32_t>(v));
  RouteFinder finder(*topology);  // one for all, since it keeps what it found before
  for (int from = 0; from < topology->devices(); ++from) {
    for (int to = 0; to < topology->devices(); ++to) {
      if (from == to) continue;
      const NetworkRoute route = finder.Between(from, to).value();
      std::map<int32_t, double> shares;
      for (const Hop& hop : route.hops) shares[hop.link] += hop.share;
      const auto expected = EvenSplit(*topology, devices[from], devices[to]);
      RC_ASSERT(shares.size() == expected.size());
      for (const auto& [link, share] : expected) {
        RC_ASSERT(shares.contains(link));
        RC_ASSERT(std::abs(shares[link] - share) < 1e-12);
      }
    }
  }
}

// The time of a route does not grow with the cluster, since the spine's thousands of links are not searched.
TEST(RouteFinder, TakesAsLongInAClusterOfThousandsOfNodes) {
  const auto time_in = [](int64_t nodes) {
    const Topology topology = Make(Dgx(nodes));
    RouteFinder finder(topology);
    double best = 1e9;
    for (int attempt = 0; attempt < 5; ++attempt) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < 200; ++i) EXPECT_TRUE(finder.Between(i % 8, 8 * 64 + i % 8));
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
  };
  EXPECT_LT(time_in(16384), 5 * time_in(128));
}

}  // namespace
}  // namespace windtunnel
