#include "reports/explain.h"

#include <gtest/gtest.h>

#include "reports/communication.h"
#include "reports/critical_path.h"
#include "reports/memory_peak.h"
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
  for (Timeline& timeline : timelines)
    for (Span& span : timeline.spans)
      span.start += Microseconds(100);  // a gap of dispatch before each operator
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

TEST(ReplayMemory, FindsThePeakAndWhatIsAliveThen) {
  auto memory = ReplayMemory(SampleRole(), 2);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ(memory->startup.peak.allocated, MiB(12));  // three buffers of 4 MiB
  EXPECT_EQ(memory->steady.peak.allocated, MiB(28));   // and 16 MiB of activations
  EXPECT_EQ(memory->steady.op, kAllocOp);
  EXPECT_EQ(memory->steady.largest.front(), 3);
  EXPECT_EQ(memory->steady.largest.size(), 2u);
  EXPECT_EQ(memory->steady.peak.by_category[static_cast<int>(Category::kActivations)], MiB(16));
}

TEST(Explain, NamesBucketsTheirParametersAndTheLargestBuffers) {
  std::string buckets = ExplainBuckets(SamplePlan(), Ink(false));
  EXPECT_NE(buckets.find("bucket 0: all_reduce of 4.00 MiB, 1 parameter tensor\n"), std::string::npos)
      << buckets;
  EXPECT_NE(buckets.find("1024 × 1024"), std::string::npos) << buckets;
  auto memory = ExplainMemory(SamplePlan(), Ink(false));
  ASSERT_TRUE(memory);
  EXPECT_NE(memory->find("reached in 'steady', allocating activations for"), std::string::npos) << *memory;
}

TEST(Explain, TellsHowMuchOfEachBucketIsExposed) {
  std::string text = ExplainTime(SamplePlan(), SamplePrediction(), Ink(false));
  EXPECT_NE(text.find("50 %    2.00 ms"), std::string::npos) << text;  // of 4 ms
  EXPECT_NE(text.find("rank 1 data: all_reduce bucket 0"), std::string::npos) << text;
}

}  // namespace
}  // namespace windtunnel
