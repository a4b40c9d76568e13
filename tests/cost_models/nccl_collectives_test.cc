// Collectives on devices that are not at hand, checked against the formulas worked by hand.
#include "cost_models/nccl_collectives.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <utility>

#include "tests/cost_models/device_specs.h"

namespace windtunnel {
namespace {

// DGX A100s: eight cards of 200 Gb/s.
ClusterSpec Nodes(int64_t nodes) {
  ClusterSpec cluster;
  cluster.nodes = nodes;
  cluster.devices_per_node = 8;
  cluster.network.inter_node.kind = "roce";
  cluster.network.inter_node.gbits_per_nic = 200;
  cluster.network.nics_per_node = 8;
  return cluster;
}

GroupLayout LayoutOf(const Group& group, int64_t nodes) {
  return LayOutGroup(group, Nodes(nodes), A100()).value();
}
GroupLayout OneNode() { return LayoutOf(MakeAxis("world", 8, 8, 1).groups[0], 1); }
GroupLayout TwoNodes() { return LayoutOf(MakeAxis("world", 16, 16, 1).groups[0], 2); }

Collective Of(CollectiveKind kind, Bytes bytes) { return {kind, DType::kUInt8, bytes.count()}; }

double MicrosecondsOf(const OpKind& kind, const GroupLayout& layout,
                      CollectiveAlgorithm algorithm = CollectiveAlgorithm::kAuto) {
  return CollectiveTimeOf(kind, layout, A100().collectives, algorithm)->time / Microseconds(1);
}

// 32.2 us of latency, 7/8 of 64 MiB at 230 GB/s, and 28 us of start.
TEST(NcclCollectives, AnAllGatherOnOneNodeIsLatencyAndBandwidth) {
  EXPECT_NEAR(MicrosecondsOf(Of(CollectiveKind::kAllGather, MiB(64)), OneNode()), 32.2 + 255.3 + 28, 0.1);
}

// An all-reduce by a ring moves twice as much: 14 steps, 8.4 + 14 x 3.4 = 56 us, and twice 255.3 us.
TEST(NcclCollectives, AnAllReduceByARingIsAReduceScatterAndAnAllGather) {
  const CollectiveTime time =
      CollectiveTimeOf(Of(CollectiveKind::kAllReduce, MiB(64)), OneNode(), A100().collectives).value();
  EXPECT_EQ(time.pattern, Pattern::kRing);
  EXPECT_NEAR(time.time / Microseconds(1), 56 + 510.6 + 28, 0.1);
}

// A broadcast or reduction is a pipeline that all 64 MiB pass: one hop, 11.8 us, and 291.8 us. In a gather or
// a scatter 7/8 of them pass the root's link, and in an all-to-all everyone's.
TEST(NcclCollectives, CollectivesWithARootAreBoundByIt) {
  for (CollectiveKind kind : {CollectiveKind::kReduce, CollectiveKind::kBroadcast})
    EXPECT_NEAR(MicrosecondsOf(Of(kind, MiB(64)), OneNode()), 11.8 + 291.8 + 28, 0.1);
  for (CollectiveKind kind : {CollectiveKind::kGather, CollectiveKind::kScatter, CollectiveKind::kAllToAll})
    EXPECT_NEAR(MicrosecondsOf(Of(kind, MiB(64)), OneNode()), 11.8 + 255.3 + 28, 0.1);
}

// DeepEP on H100s with a card of 50 GB/s each, 7168 columns of bf16 (8192 tokens), 8 of 256 experts, tokens
// in at most 4 nodes: GB/s of tokens counted once for each node. Its authors measured 90 and 81 (there and
// back), 61 and 61 on 2 and 4 nodes (V2); 51 and 50 on 8 (V1).
TEST(NcclCollectives, ATokenExchangeIsAsFastAsDeepEpWasMeasured) {
  const std::pair<int, double> expected[] = {{2, 90}, {4, 60}, {8, 51}};
  const std::map<int, TokenReach> reaches = {
      {2, {0.4077, 0.9965}}, {4, {0.2271, 0.9036}}, {8, {0.1150, 0.4536}}};
  for (const auto& [nodes, rate] : expected) {
    ClusterSpec cluster = Nodes(nodes);
    cluster.network.inter_node.kind = "infiniband";
    cluster.network.inter_node.gbits_per_nic = 400;
    const int ranks = 8 * nodes;
    const GroupLayout layout = *LayOutGroup(MakeAxis("world", ranks, ranks, 1).groups[0], cluster, H100());
    Collective exchange{CollectiveKind::kTokenExchange, DType::kBFloat16, int64_t{8192} * 7168};
    exchange.reach = reaches.at(nodes);
    const CollectiveTime time = *CollectiveTimeOf(exchange, layout, H100().collectives);
    EXPECT_EQ(time.pattern, Pattern::kRelayed);
    const double brought = static_cast<double>(MessageBytes(exchange).count()) * nodes * exchange.reach.node;
    EXPECT_NEAR(brought / ((time.time - time.latency) / Seconds(1)) / 1e9, rate, 1) << nodes;
  }
}

// The low-latency protocol (LL) wins for small messages: 6.6 + 7 x 0.6 + 28 us, and next to nothing to move.
TEST(NcclCollectives, LittleMessagesGoByTheLowLatencyProtocol) {
  EXPECT_NEAR(MicrosecondsOf(Of(CollectiveKind::kAllGather, Bytes(256)), OneNode()), 38.8, 0.1);
}

// 16 ranks on 2 nodes: 8 cards of 25 GB/s at 0.94 are 188 GB/s, less than NVLink. Simple: 8.4 + 14 hops of 6
// us (the host's overhead, thrice 2 us) + 14 across; 15/16 of 2 GB; 33 us of start.
TEST(NcclCollectives, AGroupThatSpansNodesIsBoundByTheirNetworkCards) {
  const GroupLayout layout = TwoNodes();
  EXPECT_EQ(layout.nodes, 2);
  EXPECT_NEAR(layout.cards_achieved / GBps(188), 1, 1e-9);
  EXPECT_NEAR(MicrosecondsOf(Of(CollectiveKind::kAllGather, Bytes(2'000'000'000)), layout),
              8.4 + 14 * 6 + 14 + 2e9 * 15 / 16 / 188e3 + 33, 0.1);
}

// Half of an all-to-all on two nodes goes to the other node, over one card per rank: 25 GB/s at 0.94.
TEST(NcclCollectives, AnAllToAllIsBoundByWhatLeavesTheNode) {
  EXPECT_NEAR(MicrosecondsOf(Of(CollectiveKind::kAllToAll, Bytes(2'000'000'000)), TwoNodes()),
              8.4 + 14 + 1e9 / 23.5e3 + 33, 0.1);
}

// Between two ranks on different nodes, it is one message to the other rank.
TEST(NcclCollectives, AnAllToAllOfTwoRanksIsAMessage) {
  const GroupLayout apart = LayoutOf(MakeAxis("two", 16, 2, 8).groups[0], 2);
  EXPECT_NEAR(MicrosecondsOf(Of(CollectiveKind::kAllToAll, Bytes(2'000'000'000)), apart),
              MicrosecondsOf(Of(CollectiveKind::kShift, Bytes(1'000'000'000)), apart), 0.1);
}

// Each rank sends one message to its neighbour on the ring. On two nodes some messages leave their node, and
// all ranks wait for them.
TEST(NcclCollectives, AShiftIsAMessageFromEachToTheNext) {
  EXPECT_NEAR(MicrosecondsOf(Of(CollectiveKind::kShift, MiB(64)), OneNode()), 11.8 + 291.8 + 28, 0.1);
  EXPECT_NEAR(MicrosecondsOf(Of(CollectiveKind::kShift, Bytes(2'000'000'000)), TwoNodes()),
              8.4 + 14 + 2e9 / 21.2e3 + 33, 0.1);
  // Each rank is on a node of its own, like context ranks beside tensor ranks that fill a node: all messages
  // leave their node.
  EXPECT_NEAR(MicrosecondsOf(Of(CollectiveKind::kShift, Bytes(2'000'000'000)),
                             LayoutOf(MakeAxis("context", 16, 2, 8).groups[0], 2)),
              8.4 + 14 + 2e9 / 21.2e3 + 33, 0.1);
}

// Hybrid sharding on two nodes: each of the 8 groups of replicas has one card of its own.
TEST(NcclCollectives, GroupsSideBySideShareTheCards) {
  const Axis replicas = MakeAxis("replicate", 16, 2, 8);
  EXPECT_NEAR(LayoutOf(replicas.groups[3], 2).cards_achieved / GBps(23.5), 1, 1e-9);
}

// On 2 nodes of 8 H100s, an all-reduce in the switches with trees between them has a bus bandwidth of 8 x
// 57.7 GB/s at most; by a ring it has 328.
TEST(NcclCollectives, NcclChoosesTheSwitchesForLargeReductions) {
  auto pattern_of = [](Bytes bytes, int nodes) {
    ClusterSpec cluster = Nodes(nodes);
    cluster.network.inter_node.gbits_per_nic = 400;
    const GroupLayout layout =
        LayOutGroup(MakeAxis("world", 8 * nodes, 8 * nodes, 1).groups[0], cluster, H100()).value();
    return CollectiveTimeOf(Of(CollectiveKind::kAllReduce, bytes), layout, H100().collectives)->pattern;
  };
  EXPECT_EQ(pattern_of(KiB(64), 1), Pattern::kRing);
  EXPECT_EQ(pattern_of(MiB(64), 1), Pattern::kNvls);
  EXPECT_EQ(pattern_of(KiB(64), 2), Pattern::kTree);
  EXPECT_EQ(pattern_of(MiB(64), 2), Pattern::kNvlsTree);
  EXPECT_EQ(pattern_of(GiB(1), 4), Pattern::kRing);
}

// Links given by their bandwidth, with a hundredth of NVLink's, on one node and on several.
TEST(NcclCollectives, SwitchesAreAsFastAsTheLinksToThem) {
  const auto time_of = [](double gbytes, int nodes) {
    ClusterSpec cluster = Nodes(nodes);
    cluster.network.intra_node = {.kind = "", .gbytes_per_s = gbytes, .gbits_per_nic = 0, .latency_us = {}};
    cluster.network.inter_node.gbits_per_nic = 400;
    const GroupLayout layout =
        LayOutGroup(MakeAxis("world", 8 * nodes, 8 * nodes, 1).groups[0], cluster, H100()).value();
    return ToSeconds(
        CollectiveTimeOf(Of(CollectiveKind::kAllReduce, MiB(256)), layout, H100().collectives)->time);
  };
  for (int nodes : {1, 2}) EXPECT_GT(time_of(4.5, nodes), 20 * time_of(450, nodes)) << nodes;
}

// 25 + 2 us, 1 GiB x 9/8 / 308 GB/s, and 75 us x 64/65 until that rate is reached.
TEST(NcclCollectives, AReductionInTheSwitchMovesTheMessageAndItsPart) {
  const GroupLayout layout = LayOutGroup(MakeAxis("world", 8, 8, 1).groups[0], Nodes(1), H100()).value();
  const CollectiveTime time =
      CollectiveTimeOf(Of(CollectiveKind::kAllReduce, GiB(1)), layout, H100().collectives).value();
  EXPECT_NEAR(time.time / Microseconds(1), 27 + 3921.9 + 73.8, 0.1);
}

// Two nodes of 8 B200s with eight cards of 400 Gb/s: 1 GiB at 0.93 of the cards' 400 GB/s, less than a node's
// switch carries, 541 x 8/9.
// (Measured: 2,972 us over InfiniBand, 3,230 over RoCE.) Four nodes carry 2 x 3/4 of the message: 248 GB/s.
TEST(NcclCollectives, BlackwellsSwitchesAndTreesAreBoundByTheCards) {
  const DeviceSpec b200 = ParseDeviceSpec(*EmbeddedProfile("b200-sxm-180g"), "b200").value();
  for (const auto& [nodes, gbytes] : {std::pair(2, 372.0), std::pair(4, 248.0)}) {
    ClusterSpec cluster = Nodes(nodes);
    cluster.network.inter_node = {.kind = "infiniband", .gbits_per_nic = 400, .latency_us = {}};
    const GroupLayout layout =
        LayOutGroup(MakeAxis("world", 8 * nodes, 8 * nodes, 1).groups[0], cluster, b200).value();
    const CollectiveTime time = CollectiveTimeOf(Of(CollectiveKind::kAllReduce, GiB(1)), layout,
                                                 b200.collectives, CollectiveAlgorithm::kNvls)
                                    .value();
    EXPECT_EQ(time.pattern, Pattern::kNvlsTree);
    EXPECT_NEAR((time.time - time.latency) / Microseconds(1), 1073741.824 / gbytes, 1) << nodes;
  }
}

// Devices with one link each, over PCIe: sixteen rings would each get less than the lowest speed but one that
// NCCL tries.
TEST(NcclCollectives, MoreCardsThanLinksOverPciAreNotSlower) {
  const DeviceSpec l40s = ParseDeviceSpec(*EmbeddedProfile("l40s-48g"), "l40s").value();
  for (const auto algorithm :
       {CollectiveAlgorithm::kAuto, CollectiveAlgorithm::kRing, CollectiveAlgorithm::kTree}) {
    Duration before = Duration::Max();
    for (const int64_t cards : {1, 2, 4, 8, 16, 32}) {
      ClusterSpec cluster = Nodes(2);
      cluster.network.inter_node = {.kind = "infiniband", .gbits_per_nic = 50, .latency_us = {}};
      cluster.network.nics_per_node = cards;
      const GroupLayout layout = LayOutGroup(MakeAxis("world", 16, 16, 1).groups[0], cluster, l40s).value();
      const Duration time =
          CollectiveTimeOf(Of(CollectiveKind::kAllReduce, MiB(64)), layout, l40s.collectives, algorithm)
              ->time;
      EXPECT_LE(time, before) << cards << " cards, algorithm " << static_cast<int>(algorithm);
      before = time;
    }
  }
}

TEST(NcclCollectives, AnAlgorithmThatTheDeviceCannotHaveIsAnError) {
  const auto time = CollectiveTimeOf(Of(CollectiveKind::kAllReduce, MiB(1)), OneNode(), A100().collectives,
                                     CollectiveAlgorithm::kNvls);
  ASSERT_FALSE(time);
  EXPECT_NE(time.error().message.find("cluster.network.algorithm"), std::string::npos)
      << time.error().message;
}

// 8 MiB of the 64 MiB cross the network in each of eight all-reduces between two nodes, at a card's 23.5
// GB/s.
TEST(NcclCollectives, AHierarchicalAllReduceIsThreeCollectives) {
  const Bytes bytes = MiB(64);
  const GroupLayout between = LayoutOf(MakeAxis("replicate", 16, 2, 8).groups[0], 2);
  const double sum = MicrosecondsOf(Of(CollectiveKind::kReduceScatter, bytes), OneNode()) +
                     MicrosecondsOf(Of(CollectiveKind::kAllReduce, bytes / 8), between) +
                     MicrosecondsOf(Of(CollectiveKind::kAllGather, bytes), OneNode());
  EXPECT_NEAR(
      MicrosecondsOf(Of(CollectiveKind::kAllReduce, bytes), TwoNodes(), CollectiveAlgorithm::kHierarchical),
      sum, 1e-3);
}

// 8 MiB of 64 MiB come from the other node over each card, then all of them from the neighbours.
TEST(NcclCollectives, AHierarchicalAllGatherGathersBetweenNodesFirst) {
  const GroupLayout between = LayoutOf(MakeAxis("replicate", 16, 2, 8).groups[0], 2);
  const double sum = MicrosecondsOf(Of(CollectiveKind::kAllGather, MiB(8)), between) +
                     MicrosecondsOf(Of(CollectiveKind::kAllGather, MiB(64)), OneNode());
  for (CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter})
    EXPECT_NEAR(MicrosecondsOf(Of(kind, MiB(64)), TwoNodes(), CollectiveAlgorithm::kHierarchical), sum, 1e-3);
}

TEST(NcclCollectives, NoBandwidthBetweenNodesIsAnError) {
  ClusterSpec cluster = Nodes(2);
  cluster.network.inter_node = {};
  const auto layout = LayOutGroup(MakeAxis("world", 16, 16, 1).groups[0], cluster, A100());
  ASSERT_FALSE(layout);
  EXPECT_NE(layout.error().message.find("gbits_per_nic"), std::string::npos) << layout.error().message;
}

// ---- properties

CollectiveKind AnyKind() {
  return *rc::gen::element(CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                           CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                           CollectiveKind::kReduce, CollectiveKind::kGather, CollectiveKind::kScatter,
                           CollectiveKind::kAllToAll);
}
CollectiveAlgorithm AnyAlgorithm() {
  return *rc::gen::element(CollectiveAlgorithm::kRing, CollectiveAlgorithm::kTree, CollectiveAlgorithm::kPat,
                           CollectiveAlgorithm::kHierarchical);
}
CollectiveProtocol AnyProtocol() {
  return *rc::gen::element(CollectiveProtocol::kLl, CollectiveProtocol::kLl128, CollectiveProtocol::kSimple);
}

struct System {
  DeviceSpec device;
  ClusterSpec cluster;
  int ranks = 2, stride = 1;

  GroupLayout Layout() const {
    const int world = static_cast<int>(cluster.nodes * cluster.devices_per_node);
    return LayOutGroup(MakeAxis("group", world, ranks, stride).groups[0], cluster, device).value();
  }
};

System AnySystem() {
  System system{*rc::gen::arbitrary<bool>() ? A100() : H100(), Nodes(1 << *rc::gen::inRange(0, 6))};
  const int nodes = static_cast<int>(system.cluster.nodes);
  system.cluster.network.inter_node.gbits_per_nic = *rc::gen::inRange(10, 801);
  system.cluster.network.inter_node.latency_us = *rc::gen::inRange(0, 20);
  system.cluster.network.nics_per_node = 1 << *rc::gen::inRange(0, 4);
  system.cluster.network.intra_node.gbytes_per_s = *rc::gen::inRange(20, 1000);
  const int per_node = 1 << *rc::gen::inRange(0, 4);
  system.stride = 8 / per_node;
  system.ranks = nodes * per_node;
  if (system.ranks == 1) system = {system.device, system.cluster, 8, 1};
  return system;
}

Duration TimeOf(const OpKind& kind, const System& system, CollectiveAlgorithm algorithm,
                CollectiveProtocol protocol) {
  return CollectiveTimeOf(kind, system.Layout(), system.device.collectives, algorithm, protocol)->time;
}

RC_GTEST_PROP(NcclCollectivesProperties, OfOneAlgorithmMoreBytesNeverTakeLess, ()) {
  const System system = AnySystem();
  const CollectiveKind kind = AnyKind();
  const CollectiveAlgorithm algorithm = AnyAlgorithm();
  const CollectiveProtocol protocol = AnyProtocol();
  const Bytes few(*rc::gen::inRange<int64_t>(1, 1'000'000'000)),
      more = few + Bytes(*rc::gen::inRange<int64_t>(0, 1'000'000'000));
  RC_ASSERT(TimeOf(Of(kind, few), system, algorithm, protocol) <=
            TimeOf(Of(kind, more), system, algorithm, protocol));
}

RC_GTEST_PROP(NcclCollectivesProperties, OfOneAlgorithmMoreBandwidthNeverTakesLonger, ()) {
  System system = AnySystem();
  const OpKind op = Of(AnyKind(), Bytes(*rc::gen::inRange<int64_t>(1, 4'000'000'000)));
  const CollectiveAlgorithm algorithm = AnyAlgorithm();
  const CollectiveProtocol protocol = AnyProtocol();
  const Duration before = TimeOf(op, system, algorithm, protocol);
  NetworkSpec& network = system.cluster.network;
  if (*rc::gen::arbitrary<bool>()) network.inter_node.gbits_per_nic += *rc::gen::inRange(0, 500);
  else network.intra_node.gbytes_per_s += *rc::gen::inRange(0, 500);
  RC_ASSERT(TimeOf(op, system, algorithm, protocol) <= before);
}

// The lower bound for every algorithm: what the devices' links and the nodes' cards must carry, and one hop.
RC_GTEST_PROP(NcclCollectivesProperties, NothingBeatsTheLinksOrTheirLatency, ()) {
  const System system = AnySystem();
  const CollectiveKind kind = AnyKind();
  const Bytes bytes(*rc::gen::inRange<int64_t>(1, 4'000'000'000));
  const auto algorithm = *rc::gen::element(CollectiveAlgorithm::kAuto, CollectiveAlgorithm::kRing,
                                           CollectiveAlgorithm::kTree, CollectiveAlgorithm::kHierarchical);
  const GroupLayout layout = system.Layout();
  const Duration time = TimeOf(Of(kind, bytes), system, algorithm, CollectiveProtocol::kAuto);
  const double n = layout.ranks, p = layout.ranks_per_node;
  const bool to_parts = kind != CollectiveKind::kAllReduce && kind != CollectiveKind::kBroadcast &&
                        kind != CollectiveKind::kReduce;
  if (p > 1) RC_ASSERT(time >= (bytes / layout.link.nominal).Scaled(to_parts ? (p - 1) / n : (p - 1) / p));
  if (layout.nodes > 1) {
    RC_ASSERT(time >= (bytes / layout.cards_nominal).Scaled(to_parts ? (n - p) / n : 1));
    RC_ASSERT(time >= layout.net_latency);
  }
  if (algorithm == CollectiveAlgorithm::kRing && kind == CollectiveKind::kAllReduce)
    RC_ASSERT(
        time >=
        (bytes / (layout.nodes > 1 ? layout.cards_nominal : layout.link.nominal)).Scaled(2 * (n - 1) / n));
  RC_ASSERT(time >= Microseconds(0.6));
}

// A device of a node with eight cards reaches them all through its own PCIe link, which carries 52.8 GB/s:
// little more than a card of 400 Gb/s. Since it drives none of them that fast, it reaches the share of slower
// cards, 94 %.
TEST(LayOutGroup, GivesADeviceNoMoreCardsThanItsLinkToTheHostCarries) {
  const auto achieved = [](int64_t devices_per_node, int64_t nics, double gbits) {
    ClusterSpec cluster = Nodes(2);
    cluster.devices_per_node = devices_per_node;
    cluster.network.nics_per_node = nics;
    cluster.network.inter_node.gbits_per_nic = gbits;
    const int ranks = static_cast<int>(2 * devices_per_node);
    return LayOutGroup(MakeAxis("world", ranks, ranks, 1).groups[0], cluster, H100())->cards_achieved /
           GBps(1);
  };
  const double card = achieved(8, 8, 400) / 8;
  EXPECT_NEAR(achieved(1, 8, 400), 0.94 * 52.8, 1e-6);
  EXPECT_NEAR(achieved(2, 8, 400), 2 * 0.94 * 52.8, 1e-6);
  EXPECT_NEAR(achieved(8, 32, 100), 32 * achieved(8, 8, 100) / 8, 1e-9) << "four of 100 Gb/s each";
  EXPECT_NEAR(achieved(8, 4, 400), 4 * card, 1e-9) << "two devices share a card";
}

}  // namespace
}  // namespace windtunnel
