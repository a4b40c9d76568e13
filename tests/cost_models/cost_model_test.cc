#include "cost_models/cost_model.h"

#include <gtest/gtest.h>

#include "cost_models/collective_curve.h"
#include "cost_models/cost_drift.h"
#include "cost_models/cost_keys.h"

namespace windtunnel {
namespace {

constexpr OpIndex kGemm = 0, kAllReduce = 1, kBarrier = 2;

// A GEMM, an all-reduce of 2 MB and a barrier, on `ranks` ranks of one node.
Plan MakePlan(int ranks) {
  Plan plan;
  plan.world_size = ranks;
  plan.scenario.cluster.devices_per_node = ranks;
  plan.axes = {MakeAxis("world", ranks, ranks, 1)};
  plan.role_of_rank.assign(ranks, 0);
  Role role;
  role.ranks = plan.axes[0].groups[0].ranks;
  role.streams = {{StreamKind::kCompute, "compute", -1}, {StreamKind::kCommunication, "world", 0}};
  role.steady.ops.resize(3);
  role.steady.ops[kGemm].kind = Gemm{.m = 2, .n = 3, .k = 4};
  role.steady.ops[kGemm].name = "up";
  role.steady.ops[kAllReduce].kind = Collective{.elements = 500'000};
  role.steady.ops[kAllReduce].stream = 1;
  role.steady.ops[kAllReduce].name = "bucket 0";
  role.steady.ops[kBarrier].kind = Collective{.kind = CollectiveKind::kBarrier};
  role.steady.ops[kBarrier].stream = 1;
  plan.roles = {role};
  return plan;
}

const Op& OpOf(const Plan& plan, OpIndex index) { return plan.roles[0].steady.ops[index]; }

CollectiveEntry AllReduce(int ranks, int64_t bytes, Duration time) {
  return {.op = "all_reduce",
          .backend = "gloo",
          .ranks = ranks,
          .bytes = Bytes(bytes),
          .count = 10,
          .time = Distribution::Constant(time),
          .core_time = time / 2,
          .collective_rate_under_compute = 0.8,
          .compute_rate_under_collective = 0.54};
}

Profile MakeProfile() {
  Profile profile;
  profile.name = "example";
  profile.device = "cpu";
  profile.cores = 2;
  profile.dispatch[2] = Distribution::Constant(Nanoseconds(700));
  profile.Put(
      KernelEntry{CostKey(Gemm{.m = 2, .n = 3, .k = 4}), 2, 10, Distribution::Constant(Microseconds(5))});
  profile.Put(AllReduce(2, 2'000'000, Milliseconds(1.5)));
  profile.Put(CollectiveEntry{.op = "barrier",
                              .backend = "gloo",
                              .ranks = 2,
                              .bytes = Bytes(0),
                              .count = 10,
                              .time = Distribution::Constant(Microseconds(20)),
                              .core_time = Microseconds(10),
                              .collective_rate_under_compute = {},
                              .compute_rate_under_collective = {}});
  profile.Put(OutsideAllocatorEntry{"gloo", 2, MiB(30)});
  return profile;
}

// Measured costs hold for the machine as it is.
TEST(ProfileCostModel, MeasuredCollectivesHaveNoTopology) {
  const Profile profile = MakeProfile();
  Plan plan = MakePlan(2);
  plan.scenario.cluster.topology.preset = "dgx-a100";
  const auto cost = MakeProfileCostModel(profile, plan)->Kernel(OpOf(plan, kGemm));
  ASSERT_FALSE(cost);
  EXPECT_EQ(cost.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(cost.error().message.find("cluster.topology"), std::string::npos) << cost.error().message;
}

TEST(ProfileCostModel, TakesMeasuredShapesAsTheyAre) {
  const Profile profile = MakeProfile();
  const Plan plan = MakePlan(2);
  const auto model = MakeProfileCostModel(profile, plan);
  const KernelCost gemm = model->Kernel(OpOf(plan, kGemm)).value();
  EXPECT_EQ(gemm.time.p50(), Microseconds(5));
  EXPECT_EQ(gemm.source, CostSource::kMeasured);
  EXPECT_EQ(model->Dispatch().p50(), Nanoseconds(700));
  EXPECT_EQ(model->cores_per_node(), 2);
  EXPECT_EQ(model->OutsideAllocator(plan), MiB(30));
}

// The host's time for a launch was measured with a graph of as many operators. Kernels after the first follow
// sooner.
TEST(ProfileCostModel, AGraphIsLaunchedOnce) {
  Profile profile = MakeProfile();
  profile.Put(KernelEntry{GraphLaunchKey(12), 2, 10, Distribution::Constant(Microseconds(3))});
  profile.Put(KernelEntry{kGraphSavesKey, 2, 10, Distribution::Constant(Nanoseconds(800))});
  const Plan plan = MakePlan(2);
  const auto model = MakeProfileCostModel(profile, plan);
  Op op = OpOf(plan, kGemm);
  EXPECT_EQ(model->DispatchOf(op).time.p50(), Nanoseconds(700));
  op.graph = 12;
  EXPECT_EQ(model->DispatchOf(op).time.p50(), Microseconds(3));
  EXPECT_EQ(model->DispatchOf(op).source, CostSource::kMeasured);
  EXPECT_EQ(model->Kernel(op)->time.p50(), Microseconds(5));
  op.graph = -1;
  EXPECT_EQ(model->DispatchOf(op).time.p50(), Duration());
  EXPECT_EQ(model->Kernel(op)->time.p50(), Microseconds(5) - Nanoseconds(800));
}

// Issuing a product takes the host something else than issuing a copy.
TEST(ProfileCostModel, IssuesOperatorsByTheirKind) {
  Profile profile = MakeProfile();
  profile.Put(KernelEntry{"dispatch gemm", 2, 10, Distribution::Constant(Microseconds(4))});
  const Plan plan = MakePlan(2);
  const auto model = MakeProfileCostModel(profile, plan);
  Op op = OpOf(plan, kGemm);
  EXPECT_EQ(model->DispatchOf(op).time.p50(), Microseconds(4));
  EXPECT_EQ(model->DispatchOf(op).source, CostSource::kMeasured);
  op.kind = Copy{};
  EXPECT_EQ(model->DispatchOf(op).time.p50(), Nanoseconds(700));
}

TEST(ProfileCostModel, InterpolatesFromTheNearestNumberOfRanks) {
  Profile profile = MakeProfile();
  profile.Put(
      KernelEntry{CostKey(Gemm{.m = 2, .n = 3, .k = 4}), 8, 10, Distribution::Constant(Microseconds(9))});
  const Plan plan = MakePlan(4);
  const KernelCost gemm = MakeProfileCostModel(profile, plan)->Kernel(OpOf(plan, kGemm)).value();
  EXPECT_EQ(gemm.time.p50(), Microseconds(5));  // 2 is nearer to 4 than 8 is
  EXPECT_EQ(gemm.source, CostSource::kInterpolated);
}

// core share 0.75 ms / 1.5 ms = 0.5; s = 0.8 x 0.5 = 0.4, w = 0.4 / 0.6 = 2/3, e = 0.54 / 0.6 = 0.9.
TEST(ProfileCostModel, FitsTheOverlapOfACollective) {
  const Profile profile = MakeProfile();
  const Plan plan = MakePlan(2);
  const CommunicationCost cost = MakeProfileCostModel(profile, plan)
                                     ->Communication(OpOf(plan, kAllReduce), plan.axes[0].groups[0])
                                     .value();
  EXPECT_EQ(cost.time.p50(), Milliseconds(1.5));
  EXPECT_EQ(cost.source, CostSource::kMeasured);
  EXPECT_NEAR(cost.core_share, 0.5, 1e-12);
  EXPECT_NEAR(cost.weight, 2.0 / 3, 1e-12);
  EXPECT_NEAR(cost.compute_efficiency, 0.9, 1e-12);
}

TEST(ProfileCostModel, WithoutMeasuredOverlapACollectiveIsModelledAtBest) {
  Profile profile = MakeProfile();
  profile.collectives[0].compute_rate_under_collective.reset();
  const Plan plan = MakePlan(2);
  const auto model = MakeProfileCostModel(profile, plan);
  const CommunicationCost cost = model->Communication(OpOf(plan, kAllReduce), plan.axes[0].groups[0]).value();
  EXPECT_EQ(cost.source, CostSource::kModelled);
  EXPECT_EQ(cost.weight, 1);
  EXPECT_EQ(cost.compute_efficiency, 1);
  EXPECT_NEAR(cost.core_share, 0.5, 1e-12);
}

TEST(ProfileCostModel, ABarrierNeedsNoOverlap) {
  const Profile profile = MakeProfile();
  const Plan plan = MakePlan(2);
  const auto model = MakeProfileCostModel(profile, plan);
  EXPECT_EQ(model->Communication(OpOf(plan, kBarrier), plan.axes[0].groups[0]).value().source,
            CostSource::kMeasured);
}

TEST(ProfileCostModel, AGroupOfOneMovesNothing) {
  const Profile profile = MakeProfile();
  const Plan plan = MakePlan(1);
  const auto cost =
      MakeProfileCostModel(profile, plan)->Communication(OpOf(plan, kAllReduce), plan.axes[0].groups[0]);
  EXPECT_EQ(cost.value().time.p50(), Duration());
}

TEST(ProfileCostModel, NeverInventsACost) {
  const Profile profile = MakeProfile();
  const Plan plan = MakePlan(2);
  Op op = OpOf(plan, kGemm);
  std::get<Gemm>(op.kind).k = 5;
  const auto kernel = MakeProfileCostModel(profile, plan)->Kernel(op);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().kind, ErrorKind::kInvalidInput);
  EXPECT_EQ(kernel.error().message,
            "profile 'example' has no cost for operator 'up' (key \"gemm fp32 nn m=2 n=3 k=5\")");
  const Plan four = MakePlan(4);
  const auto sum =
      MakeProfileCostModel(profile, four)->Communication(OpOf(four, kAllReduce), four.axes[0].groups[0]);
  ASSERT_FALSE(sum);
  EXPECT_EQ(sum.error().message,
            "profile 'example' has no cost for operator 'bucket 0' (key \"all_reduce fp32 bytes=2000000\") "
            "among 4 ranks over gloo");
}

Plan OnTwoNodes(double gbits) {
  Plan plan = MakePlan(2);
  plan.scenario.cluster.nodes = 2;
  plan.scenario.cluster.devices_per_node = 1;
  plan.scenario.cluster.network.inter_node.kind = "ethernet";
  plan.scenario.cluster.network.inter_node.gbits_per_nic = gbits;
  return plan;
}

TEST(ProfileCostModel, CollectivesOverNodesAreThoseOfTheirNetwork) {
  const Plan plan = OnTwoNodes(0.2);
  EXPECT_EQ(CommunicatorName(plan, plan.axes[0].groups[0]), "gloo over 2 nodes of ethernet 0.2 Gb/s");
  EXPECT_EQ(CommunicatorName(MakePlan(2), MakePlan(2).axes[0].groups[0]), "gloo");
  Profile profile = MakeProfile();
  profile.dispatch[1] = profile.dispatch[2];
  EXPECT_EQ(FindMissingCosts(profile, plan).collectives.size(), 2u);
  for (CollectiveEntry entry : std::vector(profile.collectives)) {
    entry.backend = "gloo over 2 nodes of ethernet 0.2 Gb/s";
    entry.time = Distribution::Constant(Milliseconds(90));
    profile.Put(entry);
  }
  EXPECT_TRUE(FindMissingCosts(profile, plan).collectives.empty());
  const auto cost =
      MakeProfileCostModel(profile, plan)->Communication(OpOf(plan, kAllReduce), plan.axes[0].groups[0]);
  ASSERT_TRUE(cost) << cost.error().message;
  EXPECT_EQ(cost->time.p50(), Milliseconds(90));
  EXPECT_EQ(cost->source, CostSource::kMeasured);
}

TEST(ProfileCostModel, WithoutThemACollectiveTakesItsBytesOverTheWireAtLeast) {
  Profile profile = MakeProfile();
  profile.dispatch[1] = profile.dispatch[2];
  const Plan slow = OnTwoNodes(0.2), fast = OnTwoNodes(100);
  const auto time = [&](const Plan& plan, OpIndex op) {
    const auto cost =
        MakeProfileCostModel(profile, plan)->Communication(OpOf(plan, op), plan.axes[0].groups[0]);
    EXPECT_TRUE(cost) << cost.error().message;
    EXPECT_EQ(cost->source, CostSource::kModelled);
    return ToSeconds(cost->time.p50());
  };
  // 2 MB at 25 MB/s x 1448 / 1538 = 23.54 MB/s; 100 Gb/s are faster than the 1.5 ms on one node.
  EXPECT_NEAR(time(slow, kAllReduce), 0.08497, 1e-5);
  EXPECT_NEAR(time(fast, kAllReduce), 0.0015, 1e-9);
  EXPECT_NEAR(time(slow, kBarrier), 20e-6, 1e-12);
  // A network without a rate gives no cost.
  const Plan unknown = OnTwoNodes(0);
  EXPECT_FALSE(MakeProfileCostModel(profile, unknown)
                   ->Communication(OpOf(unknown, kAllReduce), unknown.axes[0].groups[0]));
}

TEST(ProfileCostModel, NoDispatchTimesAreAnErrorNotZero) {
  Profile profile = MakeProfile();
  profile.dispatch.clear();
  const Plan plan = MakePlan(2);
  EXPECT_FALSE(MakeProfileCostModel(profile, plan)->Kernel(OpOf(plan, kGemm)));
}

// Level 0.625 is halfway from 0.50 (1.0) to 0.75 (1.1).
TEST(ProfileCostModel, CommonModeIsLinearBetweenItsLevels) {
  Profile profile = MakeProfile();
  profile.common_mode = {0.9, 0.9, 0.9, 0.9, 0.95, 1.0, 1.1, 1.2, 1.2, 1.2, 1.2, 1.5};
  const Plan plan = MakePlan(2);
  const auto model = MakeProfileCostModel(profile, plan);
  EXPECT_NEAR(model->CommonMode(0.625), 1.05, 1e-12);
  EXPECT_EQ(model->CommonMode(0), 0.9);
  EXPECT_EQ(model->CommonMode(1), 1.5);
}

TEST(ProfileCostModel, ADeviceWithItsOwnEnginesSharesNoCores) {
  Profile profile = MakeProfile();
  profile.device = "cuda";
  const Plan plan = MakePlan(2);
  const auto model = MakeProfileCostModel(profile, plan);
  EXPECT_EQ(model->cores_per_node(), 0);
  EXPECT_EQ(model->Communication(OpOf(plan, kAllReduce), plan.axes[0].groups[0]).value().core_share, 0);
}

// 1 MB in 1 ms, 3 MB in 2 ms, 4 MB in 2 ms.
TEST(CollectiveCurve, FollowsItsFourRules) {
  Profile profile;
  profile.Put(AllReduce(2, 3'000'000, Milliseconds(2)));
  profile.Put(AllReduce(2, 1'000'000, Milliseconds(1)));
  profile.Put(AllReduce(2, 4'000'000, Milliseconds(2)));
  const CollectiveCurve curve(profile, "all_reduce", "gloo", 2);
  auto expect = [&](int64_t bytes, Duration time, CostSource source) {
    const CollectiveEstimate estimate = curve.At(Bytes(bytes)).value();
    EXPECT_EQ(estimate.entry.time.p50(), time) << bytes;
    EXPECT_EQ(estimate.entry.core_time, time / 2) << bytes;
    EXPECT_EQ(estimate.source, source) << bytes;
  };
  expect(3'000'000, Milliseconds(2), CostSource::kMeasured);
  expect(2'000'000, Milliseconds(1.5), CostSource::kInterpolated);
  expect(1, Milliseconds(1), CostSource::kInterpolated);
  expect(10'000'000, Milliseconds(5), CostSource::kModelled);
  EXPECT_FALSE(CollectiveCurve(profile, "all_reduce", "mpi", 2).At(Bytes(1)));
}

TEST(MissingCosts, ListsWhatTheSteadyStepNeedsAtExactlyItsRanks) {
  const MissingCosts all = FindMissingCosts(Profile{}, MakePlan(2));
  EXPECT_EQ(all.kernels, (std::vector<std::string>{"gemm fp32 nn m=2 n=3 k=4"}));
  EXPECT_EQ(all.collectives,
            (std::vector<std::string>{"all_reduce fp32 bytes=2000000", "barrier fp32 bytes=0"}));
  EXPECT_TRUE(all.dispatch);
  EXPECT_TRUE(all.outside_allocator);
  EXPECT_TRUE(FindMissingCosts(MakeProfile(), MakePlan(2)).empty());
  EXPECT_EQ(FindMissingCosts(MakeProfile(), MakePlan(4)).kernels.size(), 1u);
}

TEST(MissingCosts, ListsTheLaunchesOfGraphs) {
  Plan plan = MakePlan(2);
  for (Op& op : plan.roles[0].steady.ops)
    if (std::holds_alternative<Gemm>(op.kind)) op.graph = 7;
  EXPECT_EQ(FindMissingCosts(MakeProfile(), plan).kernels,
            (std::vector<std::string>{"graph_launch operators=7", "graph_saves"}));
}

// Each rank takes 5 us with 700 ns of dispatch before them, 1.5 ms and 20 us.
TEST(CostDrift, IsOfAllOperatorsOneAfterTheOther) {
  const Plan plan = MakePlan(2);
  const Profile then = MakeProfile();
  EXPECT_EQ(CostDrift(then, then, plan).value(), 0);
  Profile slower = MakeProfile();
  slower.Put(KernelEntry{CostKey(Gemm{.m = 2, .n = 3, .k = 4}), 2, 10,
                         Distribution::Constant(Microseconds(5 + 152.57))});
  EXPECT_NEAR(CostDrift(then, slower, plan).value(), 0.1, 1e-6);
  EXPECT_NEAR(CostDrift(slower, then, plan).value(), 1 / 1.1 - 1, 1e-6);
  Profile faster = MakeProfile();
  faster.Put(AllReduce(2, 2'000'000, Milliseconds(0.75)));
  EXPECT_NEAR(CostDrift(then, faster, plan).value(), -0.75 / 1.5257, 1e-6);
}

// Costs measured in a minute in which neighbours took a core now and then: one time in ten is up to ten times
// as long, and the median is unchanged. A step of hundreds of operators meets all of these times.
TEST(CostDrift, IsSeenInTimesThatAreLongNowAndThen) {
  const Plan plan = MakePlan(2);
  std::array<Duration, Distribution::kCount> times;
  times.fill(Milliseconds(1));
  // From 95 % on, and on the way there from 90 % on.
  std::fill(times.begin() + 8, times.end(), Milliseconds(10));
  Profile disturbed = MakeProfile(), quiet = MakeProfile();
  const std::string key = CostKey(Gemm{.m = 2, .n = 3, .k = 4});
  disturbed.Put(KernelEntry{key, 2, 8000, Distribution::FromQuantiles(times)});
  quiet.Put(KernelEntry{key, 2, 8000, Distribution::Constant(Milliseconds(1))});
  const double others = 1.5207, before = 0.9 + 0.05 * 5.5 + 0.05 * 10 + others, after = 1 + others;
  EXPECT_NEAR(CostDrift(disturbed, quiet, plan).value(), after / before - 1, 1e-6);
}

TEST(CostDrift, NamesAnOperatorWithoutCost) {
  Profile lacking;
  lacking.dispatch[2] = Distribution::Constant(Nanoseconds(700));
  const auto drift = CostDrift(MakeProfile(), lacking, MakePlan(2));
  ASSERT_FALSE(drift);
  EXPECT_EQ(drift.error().kind, ErrorKind::kInvalidInput);
  EXPECT_NE(drift.error().message.find("gemm"), std::string::npos) << drift.error().message;
}

TEST(MissingCosts, OneRankNeedsNoCollectives) {
  const MissingCosts missing = FindMissingCosts(Profile{}, MakePlan(1));
  EXPECT_TRUE(missing.collectives.empty());
  Profile profile;
  profile.Put(OutsideAllocatorEntry{"none", 1, MiB(20)});
  EXPECT_FALSE(FindMissingCosts(profile, MakePlan(1)).outside_allocator);
}

}  // namespace
}  // namespace windtunnel
