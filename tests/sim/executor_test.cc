// Hand-computed timelines. Times are in microseconds.
#include "sim/executor.h"

#include <gtest/gtest.h>

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

// forward 10, backward 10, a bucket of 20 beside 10 + 10 of backward, then the optimizer that waits for it.
PlanBuilder OneBucket() {
  PlanBuilder b(2);
  b.Kernel("forward", 10);
  const OpIndex ready = b.Kernel("backward 1", 10);
  const OpIndex bucket = b.Collective("bucket", 20, {ready});
  b.Kernel("backward 2", 10);
  b.Kernel("backward 3", 10);
  b.Kernel("optimizer", 5, {bucket});
  b.Barrier();
  return b;
}

// Dispatch 1 before each. forward 1-11, backward 1 12-22, the bucket is issued at 23 and takes until 43;
// backward 2 24-34, backward 3 35-45; at 46 the bucket is done: optimizer 46-51; the barrier is issued at 52
// and takes 3.
TEST(Executor, OverlapsABucketWithBackward) {
  const Execution o = Execute(OneBucket(), [] {
    FakeCosts costs;
    costs.dispatch = Microseconds(1);
    costs.barrier = Microseconds(3);
    return costs;
  }());
  for (int rank : {0, 1}) {
    EXPECT_EQ(o.Start(rank, "forward"), 1);
    EXPECT_EQ(o.Start(rank, "bucket"), 23);
    EXPECT_EQ(o.End(rank, "bucket"), 43);
    EXPECT_EQ(o.Start(rank, "backward 2"), 24);
    EXPECT_EQ(o.End(rank, "backward 3"), 45);
    EXPECT_EQ(o.Start(rank, "optimizer"), 46);
    EXPECT_EQ(o.timelines[rank].end, Microseconds(55));
  }
  EXPECT_EQ(o.Step(), 55);
}

// The bucket needs half a core and has weight 1, so beside it the host runs at 1/2, and it is not slowed down
// itself: 20-40. Until 40 the host has done 10 of its 20: backward 2 ends at 40. backward 3 40-50, optimizer
// 50-55.
TEST(Executor, SharesACoreBetweenComputationAndCommunication) {
  FakeCosts costs;
  costs.cores = 2;
  costs.sharing = {.core_share = 0.5, .weight = 1};
  const Execution o = Execute(OneBucket(), costs);
  EXPECT_EQ(o.End(0, "bucket"), 40);
  EXPECT_EQ(o.Start(0, "backward 2"), 20);
  EXPECT_EQ(o.End(0, "backward 2"), 40);
  EXPECT_EQ(o.End(0, "backward 3"), 50);
  EXPECT_EQ(o.Step(), 55);
}

// Weight 1/3 beside one thread: the host gets 3/4, the bucket 1/4 of the 0.8 that it needs, a speed of 5/16.
// Until the host has done its 20 at 20 + 20 / 0.75 = 46.667, the bucket has done 8.333; alone it does the
// other 11.667 until 58.333.
TEST(Executor, SlowsDownACollectiveThatLosesItsCore) {
  FakeCosts costs;
  costs.cores = 2;
  costs.sharing = {.core_share = 0.8, .weight = 1.0 / 3};
  const Execution o = Execute(OneBucket(), costs);
  EXPECT_NEAR(o.End(0, "backward 3"), 20 + 20 / 0.75, 1e-5);
  EXPECT_NEAR(o.End(0, "bucket"), 20 + 20 / 0.75 + (20 - 20 / 0.75 * 0.3125), 1e-5);
  EXPECT_NEAR(o.Step(), 63 + 1.0 / 3, 1e-5);
}

// Efficiency 0.8 while the bucket is in flight (20-40): the host does 16 of its 20 until 40, and ends at 44.
TEST(Executor, SlowsDownKernelsBesideACollectiveByItsEfficiency) {
  FakeCosts costs;
  costs.sharing = {.compute_efficiency = 0.8};
  const Execution o = Execute(OneBucket(), costs);
  EXPECT_EQ(o.End(0, "bucket"), 40);
  EXPECT_EQ(o.End(0, "backward 2"), 32.5);  // 20 + 10 / 0.8
  EXPECT_EQ(o.End(0, "backward 3"), 44);
}

// The second bucket is issued at 20, but its stream is busy with the first until 10 + 30 = 40.
TEST(Executor, RunsAStreamStrictlyInOrder) {
  PlanBuilder b(2);
  const OpIndex one = b.Kernel("one", 10);
  b.Collective("bucket 1", 30, {one});
  const OpIndex two = b.Kernel("two", 10);
  const OpIndex last = b.Collective("bucket 2", 30, {two});
  b.Kernel("optimizer", 5, {last});
  const Execution o = Execute(b, {});
  EXPECT_EQ(o.Start(0, "bucket 2"), 40);
  EXPECT_EQ(o.End(0, "bucket 2"), 70);
  EXPECT_EQ(o.Step(), 75);
}

// As above, but on a stream of its own the second bucket begins at once.
TEST(Executor, RunsTwoStreamsSideBySide) {
  PlanBuilder b(2);
  const OpIndex one = b.Kernel("one", 10);
  b.Collective("bucket 1", 30, {one});
  const OpIndex two = b.Kernel("two", 10);
  b.Collective("bucket 2", 30, {two}, kOther);
  const Execution o = Execute(b, {});
  EXPECT_EQ(o.End(0, "bucket 1"), 40);
  EXPECT_EQ(o.Start(0, "bucket 2"), 20);
  EXPECT_EQ(o.End(0, "bucket 2"), 50);
}

// Rank 1 comes at 30, so the collective that rank 0 has reached at 10 begins at 30 and ends at 35 on both.
TEST(Executor, BeginsACollectiveWhenTheLastRankArrives) {
  PlanBuilder b(2);
  b.BeginRole({0});
  b.Kernel("work", 10);
  b.Collective("sum", 5);
  b.BeginRole({1});
  b.Kernel("work", 30);
  b.Collective("sum", 5);
  const Execution o = Execute(b, {});
  EXPECT_EQ(o.Start(0, "sum"), 10);
  EXPECT_EQ(o.Start(1, "sum"), 30);
  EXPECT_EQ(o.End(0, "sum"), 35);
  EXPECT_EQ(o.End(1, "sum"), 35);
}

// One core for two ranks: both go at 1/2 until rank 0 has done its 10 at 20; rank 1 does its last 20 alone.
TEST(Executor, TimeSlicesOversubscribedRanks) {
  PlanBuilder b(2);
  b.BeginRole({0});
  b.Kernel("work", 10);
  b.Barrier();
  b.BeginRole({1});
  b.Kernel("work", 30);
  b.Barrier();
  FakeCosts costs;
  costs.cores = 1;
  const Execution o = Execute(b, costs);
  EXPECT_EQ(o.End(0, "work"), 20);
  EXPECT_EQ(o.End(1, "work"), 40);
  EXPECT_EQ(o.Step(), 40);
}

// Four ranks on two cores: rank r on core r mod 2. Ranks 0 and 2 share one, 1 and 3 the other.
TEST(Executor, PlacesRanksOnCoresInTurn) {
  PlanBuilder b(4);
  for (int rank : {0, 1, 2, 3}) {
    b.BeginRole({rank});
    b.Kernel("work", rank < 2 ? 10 : 20);
  }
  FakeCosts costs;
  costs.cores = 2;
  const Execution o = Execute(b, costs);
  for (int rank : {0, 1}) EXPECT_EQ(o.End(rank, "work"), 20);
  for (int rank : {2, 3}) EXPECT_EQ(o.End(rank, "work"), 30);
}

// While a host waits, its collective has the core to itself: nothing is slowed down from 10 on.
TEST(Executor, AWaitingHostTakesNoCore) {
  PlanBuilder b(2);
  const OpIndex ready = b.Kernel("backward", 10);
  const OpIndex bucket = b.Collective("bucket", 20, {ready});
  b.Kernel("optimizer", 5, {bucket});
  FakeCosts costs;
  costs.cores = 2;
  costs.sharing = {.core_share = 1, .weight = 1, .compute_efficiency = 0.5};
  EXPECT_EQ(Execute(b, costs).Step(), 35);
}

// Rank 0: 10, then sends until 15 while it works on; rank 1 waits from 0, receives at 10-15, works 15-25.
TEST(Executor, PairsASendWithItsReceive) {
  PlanBuilder b(2);
  b.BeginRole({0});
  const OpIndex stage = b.Kernel("stage 0", 10);
  b.SendTo(1, "activations", 5, {stage});
  b.Kernel("next", 10);
  b.BeginRole({1});
  const OpIndex input = b.ReceiveFrom(0, "activations", 5);
  b.Kernel("stage 1", 10, {input});
  const Execution o = Execute(b, {});
  EXPECT_EQ(o.End(0, "next"), 20);
  EXPECT_EQ(o.Start(1, "activations"), 0);
  EXPECT_EQ(o.End(1, "activations"), 15);
  EXPECT_EQ(o.End(1, "stage 1"), 25);
  const StepBreakdown one = o.Breakdown(1);
  EXPECT_EQ(one.bubble, Microseconds(15));
  EXPECT_EQ(one.compute, Microseconds(10));
}

// backward 10, bucket 10-30 of which the host computes 10-15 and waits 15-30; optimizer 30-35.
TEST(Executor, CommunicationThatNothingHidesIsExposed) {
  PlanBuilder b(2);
  const OpIndex ready = b.Kernel("backward", 10);
  const OpIndex bucket = b.Collective("bucket", 20, {ready});
  b.Kernel("backward 2", 5);
  b.Kernel("optimizer", 5, {bucket});
  const Execution o = Execute(b, {});
  const StepBreakdown one = o.Breakdown(0);
  EXPECT_EQ(one.exposed_communication, Microseconds(15));
  EXPECT_EQ(one.compute, Microseconds(20));
  EXPECT_EQ(one.step, Microseconds(35));
}

// The number of operators does not matter: there are three segments on each rank (before the bucket, beside
// it, after the wait) and the bucket.
TEST(Executor, TakesOneEventForAllWorkBetweenTwoPointsOfCommunication) {
  PlanBuilder b(2);
  for (int i = 0; i < 100; ++i) b.Kernel("forward", 1);
  const OpIndex bucket = b.Collective("bucket", 20);
  for (int i = 0; i < 100; ++i) b.Kernel("backward", 1);
  b.Kernel("optimizer", 1, {bucket});
  const Execution o = Execute(b, {});
  EXPECT_EQ(o.Step(), 201);
  EXPECT_EQ(o.events, 2 * 3 + 1);
}

// A reduce-scatter 10-30 and, on another stream, the all-reduce of its result. The all-reduce waits in its
// queue until 30, while the host goes on with the next layer at 10.
TEST(Executor, CommunicationThatDependsOnAnotherStreamWaitsInItsQueueNotInTheHost) {
  PlanBuilder b(2);
  const OpIndex ready = b.Kernel("backward 1", 10);
  const OpIndex scatter = b.Collective("scatter", 20, {ready});
  const OpIndex reduce = b.Collective("reduce", 8, {scatter}, kOther);
  b.Kernel("backward 2", 10);
  b.Kernel("optimizer", 5, {reduce});
  const Execution o = Execute(b, {});
  EXPECT_EQ(o.Start(0, "backward 2"), 10);
  EXPECT_EQ(o.Start(0, "reduce"), 30);
  EXPECT_EQ(o.Start(0, "optimizer"), 38);
}

TEST(Executor, DeadlockListsWhoWaitsForWhat) {
  PlanBuilder b(2);
  b.BeginRole({0});
  const OpIndex x = b.Collective("x", 5, {}, kData);
  b.Kernel("after x", 1, {x});
  const OpIndex y = b.Collective("y", 5, {}, kOther);
  b.Kernel("after y", 1, {y});
  b.BeginRole({1});
  const OpIndex first = b.Collective("y", 5, {}, kOther);
  b.Kernel("after y", 1, {first});
  b.Collective("x", 5, {}, kData);
  const std::string error = ExecuteInVain(b, {});
  EXPECT_EQ(error,
            "deadlock: nothing can go on, but the step is not over\n"
            "  rank 0 waits for all_reduce 'x' (op 0)\n"
            "  rank 0 is in all_reduce 'x' (op 0), which waits for rank 1 (not issued)\n"
            "  rank 1 waits for all_reduce 'y' (op 0)\n"
            "  rank 1 is in all_reduce 'y' (op 0), which waits for rank 0 (not issued)");
}

TEST(Executor, ACollectiveThatOneRankLacksIsADeadlockToo) {
  PlanBuilder b(2);
  b.BeginRole({0});
  b.Kernel("work", 5);
  b.Collective("lonely", 5);
  b.BeginRole({1});
  b.Kernel("work", 5);
  const std::string error = ExecuteInVain(b, {});
  EXPECT_NE(error.find("'lonely' (op 1), which waits for rank 1 (its program has no such operator)"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace windtunnel
