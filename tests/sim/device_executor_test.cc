// Hand-computed timelines of devices that compute asynchronously while the host only issues. Times are in
// microseconds.
#include <gtest/gtest.h>

#include "sim/predict.h"
#include "tests/sim/fixtures.h"

namespace windtunnel {
namespace {

using testing::Execute;
using testing::ExecuteInVain;
using testing::Execution;
using testing::FakeCosts;
using testing::kData;
using testing::kOther;
using testing::PlanBuilder;

FakeCosts Device(int64_t dispatch) {
  FakeCosts costs;
  costs.on_device = true;
  costs.dispatch = Microseconds(static_cast<double>(dispatch));
  return costs;
}

// Issued at 5, 10 and 15, each kernel ends long before the next is issued.
TEST(DeviceExecutor, WaitsForAHostThatIsSlowerThanItsKernels) {
  PlanBuilder b(1);
  for (const char* name : {"one", "two", "three"}) b.Kernel(name, 1);
  const Execution o = Execute(b, Device(5));
  EXPECT_EQ(o.Start(0, "one"), 5);
  EXPECT_EQ(o.Start(0, "two"), 10);
  EXPECT_EQ(o.Start(0, "three"), 15);
  EXPECT_EQ(o.Step(), 16);
  EXPECT_EQ(o.Breakdown(0).compute, Microseconds(3));
  EXPECT_EQ(o.Breakdown(0).host, Microseconds(13));
}

// Issued at 1, 2 and 3; only the first launch shows.
TEST(DeviceExecutor, RunsKernelsBackToBackWhenTheHostRunsAhead) {
  PlanBuilder b(1);
  for (const char* name : {"one", "two", "three"}) b.Kernel(name, 10);
  const Execution o = Execute(b, Device(1));
  EXPECT_EQ(o.Start(0, "two"), 11);
  EXPECT_EQ(o.Step(), 31);
  EXPECT_EQ(o.Breakdown(0).host, Microseconds(1));
}

// backward 1: 1-11, backward 2: 11-21. The scatters follow each other on their stream, 11-31-51, and each
// reduce its scatter, 31-39 and 51-59. The optimizer, issued at 7, waits for the second: 59-64.
TEST(DeviceExecutor, ChainsReduceScattersAndAllReducesOfTwoStreams) {
  PlanBuilder b(2);
  OpIndex reduce = -1;
  for (const char* layer : {"1", "2"}) {
    const OpIndex backward = b.Kernel(std::string("backward ") + layer, 10);
    const OpIndex scatter = b.Collective(std::string("scatter ") + layer, 20, {backward});
    reduce = b.Collective(std::string("reduce ") + layer, 8, {scatter}, kOther);
  }
  b.Kernel("optimizer", 5, {reduce});
  const Execution o = Execute(b, Device(1));
  for (int rank : {0, 1}) {
    EXPECT_EQ(o.Start(rank, "scatter 1"), 11);
    EXPECT_EQ(o.Start(rank, "scatter 2"), 31);
    EXPECT_EQ(o.Start(rank, "reduce 1"), 31);
    EXPECT_EQ(o.Start(rank, "reduce 2"), 51);
    EXPECT_EQ(o.Start(rank, "optimizer"), 59);
    EXPECT_EQ(o.Breakdown(rank).exposed_communication, Microseconds(59 - 21));
  }
  EXPECT_EQ(o.Step(), 64);
}

// The host, which has issued "one" at 1, waits for its end at 11 and only then allocates and issues the
// gather: 12-17. Without the wait the gather would go at 2.
TEST(DeviceExecutor, AHostWaitBoundsHowFarTheHostRunsAhead) {
  PlanBuilder b(2);
  const OpIndex one = b.Kernel("one", 10);
  b.HostWaitFor({one});
  const BufferId parameters = b.Alloc("parameters", MiB(1), Category::kParameters);
  const OpIndex gather = b.Collective("gather", 5);
  b.Kernel("two", 10, {gather});
  b.Free(parameters);
  const Execution o = Execute(b, Device(1));
  EXPECT_EQ(o.timelines[0].memory.front().time, Microseconds(11));
  EXPECT_EQ(o.Start(0, "gather"), 12);
  EXPECT_EQ(o.Start(0, "two"), 17);
  EXPECT_EQ(o.Step(), 27);
}

// One stream carries both. Issued after the reduce-scatter (10-30), the next unit's gather ends at 35; issued
// before it, already at 5.
TEST(DeviceExecutor, AGatherIssuedBehindAReduceScatterIsExposed) {
  PlanBuilder behind(2);
  const OpIndex unit = behind.Kernel("backward 2", 10);
  behind.Collective("scatter 2", 20, {unit});
  behind.Kernel("backward 1", 10, {behind.Collective("gather 1", 5)});
  const Execution late = Execute(behind, Device(0));
  EXPECT_EQ(late.Start(0, "gather 1"), 30);
  EXPECT_EQ(late.Start(0, "backward 1"), 35);
  EXPECT_EQ(late.Breakdown(0).exposed_communication, Microseconds(25));

  PlanBuilder before(2);
  const OpIndex gather = before.Collective("gather 1", 5);
  before.Collective("scatter 2", 20, {before.Kernel("backward 2", 10)});
  before.Kernel("backward 1", 10, {gather});
  const Execution early = Execute(before, Device(0));
  EXPECT_EQ(early.Start(0, "backward 1"), 10);
  EXPECT_EQ(early.Breakdown(0).exposed_communication, Microseconds(10));  // the scatter's tail, 20-30
}

// Beside the collective (10-30) kernels go at 0.8: 16 of 20 until 30, the other 4 after it. Dispatch is not
// slowed down.
TEST(DeviceExecutor, KernelsSlowDownBesideACollective) {
  PlanBuilder b(2);
  b.Collective("bucket", 20, {b.Kernel("one", 10)});
  b.Kernel("two", 20);
  FakeCosts costs = Device(0);
  costs.sharing.compute_efficiency = 0.8;
  const Execution o = Execute(b, costs);
  EXPECT_EQ(o.End(0, "bucket"), 30);
  EXPECT_EQ(o.End(0, "two"), 34);
}

// A persistent kernel has a block for each multiprocessor. Beside a collective (10-30), blocks that find no
// free multiprocessor wait for the others to end, so the kernel runs at half its speed: 10 of 20 until 30.
// Where communication holds no multiprocessors, such kernels share like others.
TEST(DeviceExecutor, PersistentKernelsGoInTwoWavesBesideACollective) {
  PlanBuilder b(2);
  b.Collective("bucket", 20, {b.Kernel("one", 10)});
  b.Kernel("two", 20);
  FakeCosts costs = Device(0);
  costs.sharing = {.compute_efficiency = 0.8, .holds_multiprocessors = true};
  costs.beside_communication = 0.5;
  EXPECT_EQ(Execute(b, costs).End(0, "two"), 40);
  costs.sharing.holds_multiprocessors = false;
  EXPECT_EQ(Execute(b, costs).End(0, "two"), 34);
}

// Two collectives (10-30) leave 0.6 x 0.6 = 0.36 to other kernels, and no more to persistent ones: 7.2 of 20
// until 30.
TEST(DeviceExecutor, PersistentKernelsAreNoFasterThanOthersBesideSeveralCollectives) {
  PlanBuilder b(2);
  const OpIndex one = b.Kernel("one", 10);
  b.Collective("bucket", 20, {one});
  b.Collective("gather", 20, {one}, kOther);
  b.Kernel("two", 20);
  FakeCosts costs = Device(0);
  costs.sharing = {.compute_efficiency = 0.6, .holds_multiprocessors = true};
  costs.beside_communication = 0.5;
  EXPECT_NEAR(Execute(b, costs).End(0, "two"), 30 + 20 - 7.2, 1e-6);
}

// Two kernels of 10 share the device: both end at 20. A copy to the host has an engine of its own.
TEST(DeviceExecutor, KernelsOfTwoStreamsShareTheDeviceAndCopiesDoNot) {
  PlanBuilder kernels(1);
  kernels.Kernel("one", 10);
  kernels.CopyBeside("cast", 10, /*to_host=*/false);
  EXPECT_EQ(Execute(kernels, Device(0)).Step(), 20);

  PlanBuilder copies(1);
  copies.Kernel("one", 10);
  copies.CopyBeside("offload", 10, /*to_host=*/true);
  EXPECT_EQ(Execute(copies, Device(0)).Step(), 10);
}

// The compute stream's wait for the copy stream is exposed communication, and the copy counts as
// communication. "two" could have begun at 10.
TEST(DeviceExecutor, AnAwaitedCopyIsExposed) {
  PlanBuilder b(1);
  b.Kernel("one", 10);
  b.Kernel("two", 10, {b.CopyBeside("fetch", 25, /*to_host=*/true)});
  const Execution o = Execute(b, Device(0));
  EXPECT_EQ(o.Start(0, "two"), 25);
  EXPECT_EQ(o.Breakdown(0).exposed_communication, Microseconds(15));
  EXPECT_EQ(o.Breakdown(0).compute, Microseconds(20));
  EXPECT_EQ(o.Breakdown(0).communication, Microseconds(25));
}

// Rank 1's kernel is over at 30: the collective that rank 0 has reached at 10 begins there.
TEST(DeviceExecutor, BeginsACollectiveWhenTheLastRanksDeviceArrives) {
  PlanBuilder b(2);
  b.BeginRole({0});
  b.Collective("sum", 5, {b.Kernel("work", 10)});
  b.BeginRole({1});
  b.Collective("sum", 5, {b.Kernel("work", 30)});
  const Execution o = Execute(b, Device(0));
  EXPECT_EQ(o.Start(0, "sum"), 10);
  EXPECT_EQ(o.End(0, "sum"), 35);
}

// 60 days of virtual time, of the 106 that the clock can hold.
TEST(DeviceExecutor, RefusesAStepThatTimeHasNoRoomFor) {
  PlanBuilder b(1);
  for (const char* name : {"one", "two"}) b.Kernel(name, int64_t{30} * 86'400 * 1'000'000);
  const Result<Prediction> p = Predict(b.Build(), Device(1), {});
  ASSERT_FALSE(p);
  EXPECT_NE(p.error().message.find("longer than 50 days"), std::string::npos) << p.error().message;
}

TEST(DeviceExecutor, DeadlockNamesTheStreamThatIsWaitedFor) {
  PlanBuilder b(2);
  b.BeginRole({0});
  const OpIndex lonely = b.Collective("lonely", 5);
  b.Collective("after", 5, {lonely}, kOther);
  b.BeginRole({1});
  b.Kernel("work", 5);
  EXPECT_EQ(
      ExecuteInVain(b, Device(0)),
      "deadlock: nothing can go on, but the step is not over\n"
      "  rank 0 is in all_reduce 'lonely' (op 0), which waits for rank 1 (its program has no such operator)\n"
      "  rank 0 is in all_reduce 'after' (op 1), which waits for all_reduce 'lonely' (op 0) of another "
      "stream");
}

PlanBuilder TwoUnits(int ranks) {
  PlanBuilder b(ranks);
  OpIndex gather = b.Collective("gather 1", 5);
  b.Kernel("forward 1", 10, {gather});
  gather = b.Collective("gather 2", 30);
  b.Collective("scatter", 7, {b.Kernel("forward 2", 10, {gather})}, kOther);
  return b;
}

// All 64 ranks are alike, so only one is run, and its step is that of all of them.
TEST(Predict, RunsOneRankWhereAllAreAlike) {
  const Plan plan = TwoUnits(64).Build();
  const Prediction one = Predict(plan, Device(1), {}).value();
  const Execution all = Execute(TwoUnits(64), Device(1));
  EXPECT_EQ(one.p50, all.step);
  EXPECT_EQ(one.p10, one.p90);
  ASSERT_EQ(one.timelines.size(), 1u);
  EXPECT_EQ(one.breakdown.exposed_communication, all.Breakdown(63).exposed_communication);
  EXPECT_EQ(one.events, 2 * 5);  // each of five operators is issued, and ends
}

TEST(Predict, RunsTheStragglerAndOneOfTheOthers) {
  Plan plan = TwoUnits(4).Build();
  plan.scenario.cluster.straggler = {.rank = 3, .slowdown = 2};
  const Prediction p = Predict(plan, Device(1), {}).value();
  ASSERT_EQ(p.timelines.size(), 2u);
  EXPECT_EQ(p.timelines[0].stands_for, 3);
  EXPECT_EQ(p.timelines[1].rank, 3);
  EXPECT_GT(p.p50, Execute(TwoUnits(4), Device(1)).step);
  const Prediction all = Predict(plan, Device(1), {.fold = false}).value();
  EXPECT_EQ(all.timelines.size(), 4u);
  EXPECT_EQ(all.p50, p.p50);
  EXPECT_EQ(all.breakdown.exposed_communication, p.breakdown.exposed_communication);
}

// On nodes of three, the second of the groups 0-1 and 2-3 spans two nodes, so no rank stands for all.
TEST(Predict, TellsGroupsApartThatLieDifferently) {
  Plan plan = TwoUnits(4).Build();
  plan.axes[1] = MakeAxis("data", 4, 2, 1);
  plan.scenario.cluster.devices_per_node = 3;
  EXPECT_EQ(Predict(plan, Device(1), {}).value().timelines.size(), 2u);
  plan.scenario.cluster.devices_per_node = 2;
  EXPECT_EQ(Predict(plan, Device(1), {}).value().timelines.size(), 1u);
}

}  // namespace
}  // namespace windtunnel
