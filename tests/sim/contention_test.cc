// Transfers over the links of a topology.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "cost_models/device_cost_model.h"
#include "sim/network_flows.h"
#include "sim/predict.h"
#include "tests/cost_models/device_specs.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/sim/fixtures.h"
#include "tests/sim/small_clusters.h"

namespace windtunnel {
namespace {

using testing::kData;
using testing::kOther;
using testing::PlanBuilder;

constexpr int64_t kGibibyte = 1 << 28;  // elements of fp32

Plan OnDgx(const PlanBuilder& builder, int ranks) {
  Plan plan = builder.Build();
  ClusterSpec& cluster = plan.scenario.cluster;
  cluster.nodes = std::max(ranks / 8, 1);
  cluster.devices_per_node = std::min(ranks, 8);
  cluster.topology.preset = "dgx-h100";
  cluster.network.algorithm = CollectiveAlgorithm::kRing;
  cluster.network.protocol = CollectiveProtocol::kSimple;
  return plan;
}

Prediction PredictOn(const Plan& plan, bool fold = true) {
  const DeviceSpec device = H100();
  auto prediction = Predict(plan, *MakeDeviceCostModel(device, plan), {.fold = fold});
  EXPECT_TRUE(prediction) << prediction.error().message;
  return *std::move(prediction);
}

Duration TimeOf(const Plan& plan, const Prediction& prediction, const std::string& name) {
  const Span span = testing::SpanOf(plan, prediction.timelines[0], name);
  return span.end - span.start;
}

// A ring has 2 (n-1) steps. Within a node each takes 3.4 us, and 8.4 us come before. Beyond a node, steps
// that cross nodes take 14 us, and these times are multiplied by 1.4. Starts take 2 and 33 us. 2 (n-1)/n GiB
// pass each link of the ring at 360 GB/s, or beyond a node at 41 GB/s on each of 8 cards.
double ClosedForm(int n) {
  const double gib = 1073.741824e6, nodes = n / 8;
  const double moved = 2.0 * (n - 1) / n * gib;
  if (n == 8) return 8.4 + 14 * 3.4 + 2 + moved / 360e3;
  const double crossing = 2 * (nodes - 1);
  return 1.4 * (8.4 + (2.0 * (n - 1) - crossing) * 3.4 + crossing * 14) + 33 + moved / 328e3;
}

TEST(Contention, AnAllReduceThatIsAloneTakesItsClosedForm) {
  for (int ranks = 8; ranks <= 1024; ranks *= 2) {
    PlanBuilder builder(ranks);
    builder.Collective("all-reduce", kGibibyte);
    const Plan plan = OnDgx(builder, ranks);
    const double time = TimeOf(plan, PredictOn(plan), "all-reduce") / Microseconds(1);
    EXPECT_NEAR(time / ClosedForm(ranks), 1, 1e-6) << ranks;
  }
}

// A spine of a fourth of the leaves' width does not slow down a single ring, which crosses it once for each
// unit of 32 nodes.
TEST(Contention, ARingHardlyNeedsTheSpine) {
  PlanBuilder builder(1024);
  builder.Collective("all-reduce", kGibibyte);
  Plan plan = OnDgx(builder, 1024);
  plan.scenario.cluster.topology.oversubscription = 4;
  EXPECT_NEAR(TimeOf(plan, PredictOn(plan), "all-reduce") / Microseconds(1) / ClosedForm(1024), 1, 1e-6);
}

TEST(Contention, TwoThatSaturateALinkTakeExactlyTwiceAsLong) {
  for (int ranks : {8, 64, 1024}) {
    PlanBuilder alone(ranks), both(ranks);
    alone.Collective("first", kGibibyte);
    both.Collective("first", kGibibyte, {}, kData);
    both.Collective("second", kGibibyte, {}, kOther);
    const Plan of_one = OnDgx(alone, ranks), of_two = OnDgx(both, ranks);
    const Duration one = TimeOf(of_one, PredictOn(of_one), "first");
    // The second is issued one kernel launch later, so it is alone for that long at the end.
    const Prediction two = PredictOn(of_two);
    const Span first = testing::SpanOf(of_two, two.timelines[0], "first");
    const Span second = testing::SpanOf(of_two, two.timelines[0], "second");
    EXPECT_EQ(second.end - first.start, one * 2) << ranks;
    EXPECT_EQ(first.end - second.start, (one - (second.start - first.start)) * 2) << ranks;
  }
}

// If two all-reduces begin together, each takes exactly twice its time.
TEST(Contention, TwoThatBeginTogetherEndTogether) {
  PlanBuilder alone(16), both(16);
  alone.Collective("first", kGibibyte);
  const OpIndex kernel = both.Kernel("kernel", kGibibyte);
  both.Collective("first", kGibibyte, {kernel}, kData);
  both.Collective("second", kGibibyte, {kernel}, kOther);
  const Plan of_one = OnDgx(alone, 16), of_two = OnDgx(both, 16);
  const Duration one = TimeOf(of_one, PredictOn(of_one), "first");
  const Prediction two = PredictOn(of_two);
  EXPECT_EQ(TimeOf(of_two, two, "second"), one * 2);
}

// ---- groups side by side

Scenario Cluster(Scenario s, int tensor, int pipeline, int data) {
  s = OnNodesOfFour(std::move(s), "h100-sxm-80g", tensor, pipeline, data);
  s.cluster.topology.preset = "rail-fat-tree";
  return s;
}

// Four data-parallel groups of 2 ranks on 2 nodes, with a rank of each group on each node. With a card for
// each rank they do not meet; with one card for all four, each gets a quarter.
TEST(Contention, GroupsSideBySideShareCards) {
  auto bandwidth_time = [](int64_t cards, bool fold) {
    Scenario s = Cluster(TinyGpt(), 2, 2, 2);
    Plan plan = Compile(s);
    plan.axes = {MakeAxis("world", 8, 8, 1), MakeAxis("data", 8, 2, 4), MakeAxis("other", 8, 2, 4)};
    PlanBuilder builder(8);
    builder.Collective("all-reduce", kGibibyte);
    Plan built = builder.Build();
    built.axes = plan.axes;
    built.scenario.cluster = s.cluster;
    built.scenario.cluster.network.nics_per_node = cards;
    built.scenario.cluster.network.algorithm = CollectiveAlgorithm::kRing;
    built.scenario.cluster.network.protocol = CollectiveProtocol::kSimple;
    return TimeOf(built, PredictOn(built, fold), "all-reduce");
  };
  EXPECT_NEAR(bandwidth_time(1, true) / bandwidth_time(4, true), 4, 1e-6);
  EXPECT_NEAR(bandwidth_time(1, true) / bandwidth_time(1, false), 1, 1e-9);
  EXPECT_NEAR(bandwidth_time(2, true) / bandwidth_time(2, false), 1, 1e-9);
}

TEST(Contention, LinksThatAreAlikeSplitNoClass) {
  const Plan plan = Compile(Cluster(TinyGpt(), 2, 4, 4));
  const DeviceSpec device = H100();
  EXPECT_EQ(FoldWithLinks(plan, *MakeDeviceCostModel(device, plan))->classes(), 4);
}

// 8 nodes in two units, oversubscribed 2 to 1 between them. No data-parallel group leaves a unit, so no class
// is split.
TEST(Contention, UnitsOfNodesThatAreAlikeSplitNoClass) {
  Scenario s = Cluster(TinyGpt(), 2, 4, 4);
  s.cluster.topology.nodes_per_leaf = 2;
  s.cluster.topology.oversubscription = 2;
  const Plan plan = Compile(s);
  const DeviceSpec device = H100();
  EXPECT_EQ(FoldWithLinks(plan, *MakeDeviceCostModel(device, plan))->classes(), 4);
}

// The slow link is one of a node's four. Ranks whose groups cross it, or share links with such groups, get
// classes of their own.
TEST(Contention, ASlowLinkSplitsWhoFeelsIt) {
  Scenario s = Cluster(TinyGpt(), 2, 2, 4);
  s.cluster.slow_link = {.from = "node0.nic1", .to = "leaf1", .factor = 0.5};
  const Plan plan = Compile(s);
  const DeviceSpec device = H100();
  const int classes = FoldWithLinks(plan, *MakeDeviceCostModel(device, plan))->classes();
  EXPECT_GT(classes, 2);
  EXPECT_LT(classes, 16);
}

TEST(Contention, ASlowLinkMakesTheStepSlower) {
  Scenario s = Cluster(TinyGpt(), 1, 1, 16);
  s.parallel.data.kind = DataParallelKind::kFsdp;
  const Duration before = PredictOn(Compile(s)).p50;
  s.cluster.slow_link = {.from = "node2", .to = "leaf1", .factor = 0.1};
  EXPECT_GT(PredictOn(Compile(s)).p50, before);
}

TEST(Contention, WhatIsNotConnectedIsAnErrorOfThePrediction) {
  Scenario s = Cluster(TinyGpt(), 1, 1, 4);
  s.cluster.topology = {};
  for (const char* name : {"a", "b", "c", "d"}) s.cluster.topology.nodes.push_back({name, "device"});
  s.cluster.topology.links = {{"a", "b", 10, 0}, {"c", "d", 10, 0}};
  const Plan plan = Compile(s);
  const DeviceSpec device = H100();
  const auto prediction = Predict(plan, *MakeDeviceCostModel(device, plan), {});
  ASSERT_FALSE(prediction);
  EXPECT_EQ(prediction.error().kind, ErrorKind::kInvalidInput);
  EXPECT_NE(prediction.error().message.find("not connected"), std::string::npos)
      << prediction.error().message;
}

// ---- cards without a topology

// Two nodes of four devices, with a card for each. One all-reduce goes round all eight ranks, another between
// each rank and its counterpart on the other node.
Plan TwoGroupsOfARank() {
  PlanBuilder builder(8);
  const OpIndex kernel = builder.Kernel("kernel", kGibibyte);
  builder.Collective("all", kGibibyte, {kernel}, kData);
  builder.Collective("pair", kGibibyte, {kernel}, kOther);
  Plan plan = builder.Build();
  plan.axes = {MakeAxis("world", 8, 8, 1), MakeAxis("data", 8, 8, 1), MakeAxis("other", 8, 2, 4)};
  plan.scenario.cluster = Cluster(TinyGpt(), 1, 1, 8).cluster;
  plan.scenario.cluster.topology = {};
  plan.scenario.cluster.network.algorithm = CollectiveAlgorithm::kRing;
  plan.scenario.cluster.network.protocol = CollectiveProtocol::kSimple;
  return plan;
}

// A card carries a fourth of 2 x 7/8 GiB of the first all-reduce and 1 GiB of the second. They use it one
// after the other, or half of it each for twice as long.
TEST(Contention, GroupsOfOneRankShareItsCard) {
  const Plan plan = TwoGroupsOfARank();
  const DeviceSpec device = H100();
  for (const bool fold : {true, false}) {
    const auto shared = MakeDeviceCostModel(device, plan, nullptr, nullptr, CardSharing::kModelled);
    const auto apart = MakeDeviceCostModel(device, plan, nullptr, nullptr, CardSharing::kIgnored);
    const Prediction together = Predict(plan, *shared, {.fold = fold}).value();
    const Prediction alone = Predict(plan, *apart, {.fold = fold}).value();
    const Duration all = TimeOf(plan, alone, "all"), pair = TimeOf(plan, alone, "pair");
    EXPECT_LT(all, pair);
    EXPECT_NEAR(TimeOf(plan, together, "pair") / (all + pair), 1, 0.01);
    EXPECT_NEAR(TimeOf(plan, together, "all") / (all * 2), 1, 0.01);
  }
}

// The time of a group already includes that the groups of its axis share a card, so they do not slow each
// other down once more; nor does latency.
TEST(Contention, GroupsOfOneAxisTakeTheirTimeWhereThereIsNoTopology) {
  for (const int64_t elements : {int64_t{1}, int64_t{1} << 16, kGibibyte}) {
    for (const int64_t cards : {1, 2, 4}) {
      PlanBuilder builder(8);
      builder.Collective("pair", elements, {}, kOther);
      Plan plan = builder.Build();
      plan.axes = TwoGroupsOfARank().axes;
      plan.scenario.cluster = TwoGroupsOfARank().scenario.cluster;
      plan.scenario.cluster.network.algorithm = CollectiveAlgorithm::kAuto;
      plan.scenario.cluster.network.protocol = CollectiveProtocol::kAuto;
      plan.scenario.cluster.network.nics_per_node = cards;
      const DeviceSpec device = H100();
      const auto time = [&](CardSharing sharing) {
        const auto model = MakeDeviceCostModel(device, plan, nullptr, nullptr, sharing);
        return TimeOf(plan, Predict(plan, *model, {}).value(), "pair");
      };
      EXPECT_EQ(time(CardSharing::kModelled), time(CardSharing::kIgnored)) << elements << " over " << cards;
    }
  }
}

// A message to one peer moves less than a card can carry, and leaves the rest to others.
TEST(Contention, AMessageUsesAsMuchOfACardAsItMoves) {
  Plan plan = TwoGroupsOfARank();
  plan.scenario.cluster.network.inter_node.gbits_per_nic = 400;
  const DeviceSpec device = H100();
  const auto model = MakeDeviceCostModel(device, plan, nullptr, nullptr, CardSharing::kModelled);
  Op send, reduce;
  send.kind = Send{DType::kBFloat16, kGibibyte, 1};
  reduce.kind =
      Collective{.kind = CollectiveKind::kAllReduce, .dtype = DType::kFloat32, .elements = kGibibyte};
  const auto most = [&](const Op& op) {
    double share = 0;
    const auto links = model->Links(op, plan.axes[2].groups[0], 0).value();
    for (const LinkDemand& demand : *links) share = std::max(share, demand.share);
    return share;
  };
  EXPECT_NEAR(most(reduce), 1, 0.01);
  const double time = ToSeconds(model->Communication(send, plan.axes[2].groups[0])->time.p50());
  EXPECT_NEAR(most(send), 2.0 * kGibibyte / time / (0.82 * 50e9), 0.05);
  EXPECT_LT(most(send), 0.7);
}

// A step that shares links of a topology takes equally long whether it is folded or not.
TEST(Contention, FoldingChangesNoPredictionWhereLinksAreShared) {
  EXPECT_TRUE(rc::check([] {
    Scenario s = Cluster(*rc::gen::element(TinyGpt(), TinyLlama()), *rc::gen::element(1, 2),
                         *rc::gen::element(1, 2, 4), *rc::gen::element(1, 2, 4));
    if (s.parallel.tensor.size * s.parallel.pipeline.size * s.parallel.data.size == 1) return;
    if (s.parallel.data.size > 1) {
      s.parallel.data.kind =
          *rc::gen::element(DataParallelKind::kDdp, DataParallelKind::kZero1, DataParallelKind::kFsdp);
    }
    const int64_t world = s.WorldSize();
    s.cluster.devices_per_node = std::min<int64_t>(*rc::gen::element(2, 4, 8), world);
    s.cluster.nodes = world / s.cluster.devices_per_node;
    s.cluster.network.nics_per_node = *rc::gen::element(1, 2, 4);
    s.cluster.topology.preset = *rc::gen::element<std::string>("rail-fat-tree", "ethernet-4x100g");
    s.cluster.topology.oversubscription = *rc::gen::element(1.0, 4.0);
    s.cluster.topology.nodes_per_leaf = *rc::gen::element(1, 2, 3);
    if (*rc::gen::arbitrary<bool>())
      s.cluster.straggler = {.rank = *rc::gen::inRange<int64_t>(0, world), .slowdown = 1.5};
    if (*rc::gen::arbitrary<bool>())
      s.cluster.slow_link = {.from = "node0", .to = s.cluster.nodes > 1 ? "leaf0" : "node0", .factor = 0.5};
    auto plan = CompilePlan(s);
    if (!plan) RC_FAIL(plan.error().message);
    const DeviceSpec device = H100();
    const auto model = MakeDeviceCostModel(device, *plan);
    const auto folded = Predict(*plan, *model, {}), unfolded = Predict(*plan, *model, {.fold = false});
    if (!folded) RC_FAIL(folded.error().message);
    if (!unfolded) RC_FAIL(unfolded.error().message);
    // Speeds differ in their last bit if shares are added up in another order, so ends sometimes differ by a
    // picosecond.
    const double difference = std::abs((folded->p50 - unfolded->p50) / Picoseconds(1));
    if (difference > std::max(1e-9 * (folded->p50 / Picoseconds(1)), 200.0))
      RC_FAIL(fmt::format("{} and {} us", folded->p50 / Microseconds(1), unfolded->p50 / Microseconds(1)));
  }));
}

// With the algorithm held fixed and nothing to share, more bandwidth never makes a step slower.
TEST(Contention, MoreBandwidthNeverMakesAStepSlower) {
  EXPECT_TRUE(rc::check([] {
    Scenario s =
        Cluster(TinyGpt(), *rc::gen::element(1, 2), *rc::gen::element(1, 2), *rc::gen::element(1, 2, 4));
    if (s.parallel.tensor.size * s.parallel.pipeline.size * s.parallel.data.size == 1) return;
    s.cluster.topology = {};
    s.cluster.network.intra_node.gbytes_per_s = *rc::gen::inRange(10, 500);
    s.cluster.network.inter_node.gbits_per_nic = *rc::gen::inRange(10, 500);
    s.cluster.network.algorithm = CollectiveAlgorithm::kRing;
    s.cluster.network.protocol =
        *rc::gen::element(CollectiveProtocol::kLl, CollectiveProtocol::kLl128, CollectiveProtocol::kSimple);
    const Duration before = PredictOn(Compile(s)).p50;
    s.cluster.network.intra_node.gbytes_per_s += *rc::gen::inRange(0, 500);
    s.cluster.network.inter_node.gbits_per_nic += *rc::gen::inRange(0, 500);
    RC_ASSERT(PredictOn(Compile(s)).p50 <= before);
  }));
}

}  // namespace
}  // namespace windtunnel
