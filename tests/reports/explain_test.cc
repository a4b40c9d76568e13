#include "reports/explain.h"

#include <gtest/gtest.h>

#include "base/format.h"
#include "reports/communication.h"
#include "reports/critical_path.h"
#include "reports/memory_peak.h"
#include "sim/role_memory.h"
#include "tests/reports/sample_outcome.h"

namespace windtunnel {
namespace {

TEST(CriticalPath, GoesOnAtTheRankThatArrivedLast) {
  std::vector<PathSegment> path = CriticalPath(SamplePlan(), SampleTimelines());
  std::vector<std::pair<int, OpIndex>> visited;
  for (const PathSegment& segment : path) visited.push_back({segment.rank, segment.op});
  // Rank 0's optimizer waited for the all-reduce, which waited for rank 1's copy.
  std::vector<std::pair<int, OpIndex>> expected = {
      {1, kForwardOp}, {1, kBackwardOp}, {1, kCopyOp}, {1, kAllReduceOp}, {0, kOptimizerOp}};
  EXPECT_EQ(visited, expected);
}

TEST(CriticalPath, CoversTheStepWithoutGaps) {
  std::vector<Timeline> timelines = SampleTimelines();
  // A gap of dispatch before each operator.
  for (Timeline& timeline : timelines)
    for (Span& span : timeline.spans) span.start += Microseconds(100);
  std::vector<PathSegment> path = CriticalPath(SamplePlan(), timelines);
  EXPECT_EQ(path.front().start, Duration());
  EXPECT_EQ(path.front().op, -1);
  EXPECT_EQ(path.back().end, Milliseconds(11));
  for (size_t i = 1; i < path.size(); ++i) EXPECT_EQ(path[i].start, path[i - 1].end) << i;
}

TEST(CriticalPath, OfNothingIsEmpty) { EXPECT_TRUE(CriticalPath(SamplePlan(), {}).empty()); }

TEST(CommunicationUses, HidesWhatComputationOverlaps) {
  std::vector<CommunicationUse> uses = CommunicationUses(SampleRole(), SampleTimelines()[0]);
  ASSERT_EQ(uses.size(), 1u);
  EXPECT_EQ(uses[0].ready, Milliseconds(6));  // the copy's end
  EXPECT_EQ(uses[0].start, Milliseconds(6));
  EXPECT_EQ(uses[0].hidden, Milliseconds(2));  // the last gemm; then the optimizer waits from 8 to 10 ms
}

// A collective of 4 us, beside computations that overlap it in part, wholly and in part; and one with nothing
// beside it.
TEST(CommunicationUses, AreHiddenByEachComputationAsFarAsBothRun) {
  Role role = SampleRole();
  const Op gemm = role.steady.ops[SampleTimelines()[0].spans[0].op];
  const auto uses = CommunicationUses(role, SampleTimelines()[0]);
  const OpIndex collective = uses[0].op;
  role.steady.ops.assign(6, gemm);
  role.steady.ops[4] = role.steady.ops[5] = SampleRole().steady.ops[collective];
  for (Op& op : role.steady.ops) op.dependencies.clear();
  const auto at = [](OpIndex op, StreamId stream, double from, double to) {
    return Span{op, stream, Microseconds(from), Microseconds(to)};
  };
  const StreamId other = role.steady.ops[4].stream;
  const Timeline timeline{
      .end = Microseconds(20),
      .spans = {at(0, kComputeStream, 0, 3), at(1, kComputeStream, 4, 5), at(2, kComputeStream, 5, 9),
                at(3, kComputeStream, 12, 13), at(4, other, 2, 6), at(5, other, 9, 12)},
      .memory = {}};
  const auto both = CommunicationUses(role, timeline);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].hidden, Microseconds(3));  // of 2 to 3, 4 to 5 and 5 to 6
  EXPECT_EQ(both[1].hidden, Duration());
}

TEST(ReplayMemory, FindsThePeakAndWhatIsAliveThen) {
  auto memory = ReplayMemory(SampleRole(), 2);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ(memory->startup.device.allocated, MiB(12));  // three buffers of 4 MiB
  const PeakMoment& steady = memory->steady.device;
  EXPECT_EQ(steady.allocated, MiB(28));  // and 16 MiB of activations
  EXPECT_EQ(memory->steady.memory.allocated, MiB(28));
  EXPECT_EQ(steady.index, kAlloc);
  EXPECT_EQ(steady.largest.front(), 3);
  EXPECT_EQ(steady.largest.size(), 2u);
  EXPECT_EQ(steady.by_category[static_cast<int>(Category::kActivations)], MiB(16));
}

// The first steady step holds 14 and 28 MiB at once, later ones 13.5 and 28 (tests/sim/role_memory_test.cc).
TEST(ReplayMemory, HasThePeakThatPredictSays) {
  Role role;
  role.buffers = {{.name = "gradient", .bytes = MiB(13) + KiB(512), .category = Category::kGradients},
                  {.name = "logits", .bytes = MiB(28), .category = Category::kActivations},
                  {.name = "scratch", .bytes = MiB(14)}};
  role.initialize.memory = {Allocated(0)};
  role.steady.memory = {Allocated(1), Freed(0), Freed(1), Allocated(2), Allocated(0), Freed(2)};
  const RolePeaks peaks = ReplayMemory(role, 3).value();
  EXPECT_EQ(peaks.steady.memory.allocated, SimulateMemory(role)->steady.allocated);
  EXPECT_EQ(peaks.steady.device.allocated, MiB(42));
  EXPECT_EQ(peaks.steady.memory.reserved, SimulateMemory(role)->steady.reserved);
}

TEST(ReplayMemory, KeepsTheHostsPeakApart) {
  Role role = SampleRole();
  role.buffers[3].space = MemorySpace::kHost;  // the activations
  auto memory = ReplayMemory(role, 10);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ(memory->startup.host.allocated, Bytes(0));
  EXPECT_EQ(memory->steady.host.allocated, MiB(16));
  EXPECT_EQ(memory->steady.host.index, kAlloc);
  EXPECT_EQ(memory->steady.host.largest, std::vector<BufferId>{3});
  EXPECT_EQ(memory->steady.device.allocated, MiB(12));
  EXPECT_EQ(memory->steady.device.index, -1) << "what start-up left";
  EXPECT_EQ(memory->steady.device.largest.size(), 3u);
}

TEST(Explain, ListsHostMemoryOnlyWhereThereIsAny) {
  Plan plan = SamplePlan();
  EXPECT_EQ(ExplainMemory(plan, Bytes::Max(), MemoryDetail::kAll, Ink(false))->find("host memory"),
            std::string::npos);
  plan.roles[0].buffers[3].space = MemorySpace::kHost;
  const std::string text = ExplainMemory(plan, Bytes::Max(), MemoryDetail::kAll, Ink(false)).value();
  EXPECT_NE(text.find("peak host memory of the steady step, "), std::string::npos) << text;
  EXPECT_NE(text.find(": 16.0 MiB allocated\n"), std::string::npos) << text;
}

TEST(Explain, NamesBucketsTheirParametersAndTheLargestBuffers) {
  std::string buckets = ExplainBuckets(SamplePlan(), Ink(false));
  EXPECT_NE(buckets.find("bucket 0: all_reduce of 4.00 MiB, 1 parameter tensor\n"), std::string::npos)
      << buckets;
  EXPECT_NE(buckets.find(" [1024 x 1024]\n"), std::string::npos) << buckets;
  auto memory = ExplainMemory(SamplePlan(), Bytes::Max(), MemoryDetail::kAll, Ink(false));
  ASSERT_TRUE(memory);
  EXPECT_NE(memory->find("reached in 'steady', allocating activations for"), std::string::npos) << *memory;
}

TEST(Explain, NamesBucketsOfAlikeRolesOnce) {
  Plan plan = SamplePlan();
  plan.roles.push_back(plan.roles[0]);
  plan.roles[1].ranks = {7};
  const std::string text = ExplainBuckets(plan, Ink(false));
  EXPECT_EQ(text.find("what collectives carry"), text.rfind("what collectives carry")) << text;
  EXPECT_NE(text.find("  as much on ranks 7\n"), std::string::npos) << text;
}

// Agrees with `predict` for a device that is smaller than what PyTorch's allocator would keep without a
// limit.
TEST(ReplayMemory, GivesBackWhatTheDeviceHasNoRoomFor) {
  Role role = SampleRole();
  role.buffers.push_back({"scratch", MiB(32), Category::kWorkspace});
  role.startup.push_back({"step 0", {}, {Allocated(4), Freed(4)}});
  role.steady.memory[kAlloc].stream = 1;  // a stream that cannot reuse what the other has freed
  const Bytes unlimited = ReplayMemory(role, 2, AllocatorKind::kPytorch)->steady.memory.reserved;
  const Bytes room = MiB(60);
  ASSERT_GT(unlimited, room);
  const MemoryPeak peak = ReplayMemory(role, 2, AllocatorKind::kPytorch, room)->steady.memory;
  EXPECT_LE(peak.reserved, room);
  EXPECT_EQ(peak.reserved, SimulateMemoryWithin(room, role, AllocatorKind::kPytorch)->steady.reserved);
  EXPECT_EQ(ReplayMemory(role, 2, AllocatorKind::kPytorch, MiB(1))->steady.memory.reserved, unlimited)
      << "what does not fit";
}

// Start-up leaves 8 MiB of a segment free. Windtunnel's allocator takes the other stream's 4 MiB from there,
// PyTorch's does not.
TEST(Explain, SaysHowFragmentedMemoryIs) {
  Plan plan = SamplePlan();
  Role& role = plan.roles[0];
  role.buffers.push_back({"scratch", MiB(8), Category::kWorkspace});
  role.startup.push_back({"step 0", {}, {Allocated(4), Freed(4)}});
  role.buffers[3].bytes = MiB(4);
  role.steady.memory[kAlloc].stream = 1;
  plan.scenario.allocator = AllocatorKind::kWindtunnel;
  EXPECT_EQ(ExplainMemory(plan, Bytes::Max(), MemoryDetail::kAll, Ink(false))->find("fragmentation"),
            std::string::npos);
  plan.scenario.allocator = AllocatorKind::kPytorch;
  const std::string text = ExplainMemory(plan, Bytes::Max(), MemoryDetail::kAll, Ink(false)).value();
  EXPECT_NE(text.find("  fragmentation: a request of 4.00 MiB needed more memory although as much was free"),
            std::string::npos)
      << text;
  const MemoryPeak peak = SimulateMemory(role, {.allocator = AllocatorKind::kPytorch}).value().steady;
  EXPECT_NE(
      text.find(fmt::format("never allocated at once: {}", FormatBytes(peak.reserved - peak.allocated))),
      std::string::npos)
      << text;
}

TEST(Explain, TellsHowMuchOfEachBucketIsExposed) {
  std::string text = ExplainTime(SamplePlan(), SamplePrediction(), Ink(false));
  EXPECT_NE(text.find("50 %    2.00 ms"), std::string::npos) << text;  // of 4 ms
  EXPECT_NE(text.find("rank 1 data: all_reduce bucket 0"), std::string::npos) << text;
}

}  // namespace
}  // namespace windtunnel
