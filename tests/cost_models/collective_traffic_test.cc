#include "cost_models/collective_traffic.h"

#include <gtest/gtest.h>

#include "tests/cost_models/device_specs.h"

namespace windtunnel {
namespace {

ClusterSpec Nodes(int64_t nodes, int64_t devices = 8, int64_t cards = 8) {
  ClusterSpec cluster;
  cluster.nodes = nodes;
  cluster.devices_per_node = devices;
  cluster.topology.preset = "rail-fat-tree";
  cluster.network.inter_node = {.kind = "infiniband", .gbits_per_nic = 400, .latency_us = {}};
  cluster.network.nics_per_node = cards;
  return cluster;
}

// A traffic model with what it is made for.
struct Fabric {
  explicit Fabric(const ClusterSpec& c)
      : cluster(c),
        topology(MakeTopology(c, {"nvlink4", GBps(52.8)}).value()),
        shares(SharesOf(c, H100(), topology).value()),
        model(MakeTopology(c, {"nvlink4", GBps(52.8)}).value(), static_cast<int>(c.devices_per_node),
              shares) {}

  const Traffic& Of(Pattern pattern, const OpKind& kind, const Group& group, int position = 0) {
    return **model.Of(pattern, kind, group, position);
  }
  GroupLayout LayoutOf(const Group& group) { return LayOutInTopology(group, cluster, H100(), model).value(); }
  // The share of its capacity that is in use on the link between the vertices of these names.
  double ShareOf(const Traffic& traffic, const std::string& from, const std::string& to) const {
    for (const LinkDemand& demand : *traffic.demands) {
      const DirectedLink& link = topology.links()[demand.link];
      if (topology.vertices()[link.from].name == from && topology.vertices()[link.to].name == to)
        return demand.share;
    }
    return 0;
  }

  ClusterSpec cluster;
  Topology topology;
  LinkShares shares;
  TrafficModel model;
};

Group World(int ranks) { return MakeAxis("world", ranks, ranks, 1).groups[0]; }
const Collective kAllReduce = {CollectiveKind::kAllReduce, DType::kFloat32, 1 << 20};

// A ring sends 3/4 of each byte on its links over a GPU's NVLinks (450 GB/s) and 1/4 over its card (50 GB/s).
// At 0.8 and 0.82 of these rates the cards are the bottleneck: the NVLinks are in use for (0.75 / 360) /
// (0.25 / 41) = 0.3417 of the time.
TEST(CollectiveTraffic, ARingsChannelsLeaveNodesByACardEach) {
  Fabric fabric(Nodes(2, 4, 4));
  const Traffic& ring = fabric.Of(Pattern::kRing, kAllReduce, World(8));
  EXPECT_NEAR(ring.within * 450e9, 0.75, 1e-9);
  EXPECT_NEAR(ring.cards * 50e9, 0.25, 1e-9);
  EXPECT_NEAR(ring.achieved * 41e9, 0.25, 1e-9);
  EXPECT_EQ(fabric.ShareOf(ring, "node0.nic2", "leaf2"), 1);
  EXPECT_NEAR(fabric.ShareOf(ring, "node1.gpu1", "node1.nvswitch"), 0.75 / 360 / (0.25 / 41), 1e-9);
}

// A preset's topology gives the same times as the network's parts.
TEST(CollectiveTraffic, AFullFatTreeIsWhatItsCardsAre) {
  for (int64_t nodes : {1, 2, 16}) {
    Fabric fabric(Nodes(nodes));
    ClusterSpec parts = fabric.cluster;
    parts.topology = {};
    const Group world = World(static_cast<int>(8 * nodes));
    const GroupLayout with = fabric.LayoutOf(world), without = LayOutGroup(world, parts, H100()).value();
    EXPECT_NEAR(with.link.ring / without.link.ring, 1, 1e-9);
    if (nodes == 1) continue;
    EXPECT_EQ(with.cards, without.cards);
    EXPECT_NEAR(with.cards_nominal / without.cards_nominal, 1, 1e-9);
    EXPECT_NEAR(with.cards_achieved / without.cards_achieved, 1, 1e-9);
  }
}

// Without a topology, each of eight groups side by side has an eighth of the cards. With one, a group has its
// own card or, if there are two cards, one to itself as long as it is alone.
TEST(CollectiveTraffic, AGroupThatIsAloneHasItsCardsToItself) {
  const Group replicas = MakeAxis("replicate", 16, 2, 8).groups[3];
  EXPECT_NEAR(Fabric(Nodes(2)).LayoutOf(replicas).cards_nominal / GBps(50), 1, 1e-9);
  EXPECT_NEAR(Fabric(Nodes(2, 8, 2)).LayoutOf(replicas).cards_nominal / GBps(50), 1, 1e-9);
}

// Each of the 8 rings leaves a unit of 4 nodes at one place. An oversubscription of 32:1 leaves a leaf's 4
// cards 6.25 GB/s to the spine.
TEST(CollectiveTraffic, TheSpineIsTheBottleneckOnlyIfItIsNarrowerThanACard) {
  ClusterSpec cluster = Nodes(8);
  cluster.topology.nodes_per_leaf = 4;
  cluster.topology.oversubscription = 4;
  EXPECT_NEAR(Fabric(cluster).LayoutOf(World(64)).cards_achieved / GBps(328), 1, 1e-9);
  cluster.topology.oversubscription = 32;
  EXPECT_NEAR(Fabric(cluster).LayoutOf(World(64)).cards_achieved / GBps(328), 6.25 / 50, 1e-9);
}

TEST(CollectiveTraffic, ASlowLinkHoldsUpTheWholeRing) {
  ClusterSpec cluster = Nodes(4);
  cluster.slow_link = {.from = "node2", .to = "leaf6", .factor = 0.5};
  EXPECT_NEAR(Fabric(cluster).LayoutOf(World(32)).cards_achieved / GBps(164), 1, 1e-9);
}

// In an all-to-all of 16 ranks a GPU sends 7/16 of its buffer to its node over NVLink, and 8/16 to the other
// node: 7/16 over NVLink first, to the cards of the receivers' rails. Over its own card go as many bytes.
TEST(CollectiveTraffic, AnAllToAllSendsEveryoneAPart) {
  Fabric fabric(Nodes(2));
  const Traffic& all =
      fabric.Of(Pattern::kPairs, Collective{CollectiveKind::kAllToAll, DType::kFloat32, 1}, World(16));
  EXPECT_NEAR(all.within * 450e9, 14.0 / 16, 1e-9);
  EXPECT_NEAR(all.cards * 50e9, 8.0 / 16, 1e-9);
}

// Messages reach other rails within the node, so an all-to-all among the nodes of one leaf does not use the
// spine.
TEST(CollectiveTraffic, AnAllToAllStaysOnItsRails) {
  ClusterSpec cluster = Nodes(4);
  cluster.topology.nodes_per_leaf = 4;
  cluster.topology.oversubscription = 8;
  const Collective all_to_all{CollectiveKind::kAllToAll, DType::kFloat32, 1};
  Fabric fabric(cluster);
  const Traffic& all = fabric.Of(Pattern::kPairs, all_to_all, World(32));
  EXPECT_EQ(fabric.ShareOf(all, "leaf3", "spine"), 0);
  EXPECT_NEAR(all.beyond * 50e9, 24.0 / 32, 1e-9);
  const Traffic& sent = fabric.Of(Pattern::kPairs, Send{DType::kFloat32, 1, /*peer=*/12}, World(32), 1);
  EXPECT_EQ(fabric.ShareOf(sent, "node0.nic4", "leaf4"), 1);
  EXPECT_EQ(fabric.ShareOf(sent, "node0.nic1", "leaf1"), 0);
}

// A node gets 3/4 of each of the 16 ranks' tokens, over the card of the rank's peer there. A rank gets 1/4 of
// every rank's tokens: those of two ranks from each of the 7 others on its node.
TEST(CollectiveTraffic, ATokenExchangeCrossesACardOnceForEachNode) {
  Fabric fabric(Nodes(2));
  Collective exchange{CollectiveKind::kTokenExchange, DType::kFloat32, 1};
  exchange.reach = {.rank = 0.25, .node = 0.75};
  const Traffic& all = fabric.Of(Pattern::kRelayed, exchange, World(16));
  EXPECT_NEAR(all.within * 450e9, 7 * 2 * 0.25, 1e-9);
  EXPECT_NEAR(all.cards * 50e9, 0.75, 1e-9);
  exchange.reach.node = 0.5;
  EXPECT_NEAR(fabric.Of(Pattern::kRelayed, exchange, World(16)).cards * 50e9, 0.5, 1e-9);
}

TEST(CollectiveTraffic, AMessageCrossesTheLinksOfItsPairAlone) {
  Fabric fabric(Nodes(2));
  const Group group = World(16);
  const Traffic& sent = fabric.Of(Pattern::kPairs, Send{DType::kFloat32, 1, /*peer=*/9}, group, 1);
  EXPECT_EQ(fabric.ShareOf(sent, "node0.nic1", "leaf1"), 1);
  EXPECT_EQ(fabric.ShareOf(sent, "leaf1", "node0.nic1"), 0);
  EXPECT_EQ(&sent, &fabric.Of(Pattern::kPairs, Receive{DType::kFloat32, 1, /*peer=*/1}, group, 9));
}

// A switch that reduces takes the message and a part from each of 8 GPUs.
TEST(CollectiveTraffic, AReductionInTheSwitchPassesEachLinkOnce) {
  Fabric fabric(Nodes(1));
  EXPECT_NEAR(fabric.Of(Pattern::kNvls, kAllReduce, World(8)).within * 450e9, 9.0 / 8, 1e-9);
}

}  // namespace
}  // namespace windtunnel
