#include "reports/by_role.h"

#include <gtest/gtest.h>

#include "tests/reports/sample_outcome.h"
#include "tests/reports/sample_pipeline.h"

namespace windtunnel {
namespace {

// Rank 0 waits for 2 ms, from 8 to 10; rank 1 for 1 ms, from 9 to 10.
TEST(TimeByRole, IsTheMeanOverTheRolesRanks) {
  const std::vector<RoleTime> times = TimeByRole(SamplePlan(), BreakDown(SamplePlan(), SampleTimelines()));
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].name, "replica");
  EXPECT_EQ(times[0].ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(times[0].breakdown.exposed_communication, Milliseconds(1.5));
  EXPECT_EQ(times[0].breakdown.compute, Milliseconds(9.5));
  EXPECT_EQ(times[0].breakdown.bubble_fraction(), 0);
}

TEST(TimeByRank, NamesTheRanksAndTheirRoles) {
  const std::vector<RoleTime> times = TimeByRank(SamplePlan(), SampleMeasurement().by_rank);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[1].name, "replica");
  EXPECT_EQ(times[1].ranks, std::vector<int>{1});
  EXPECT_EQ(times[1].breakdown.exposed_communication, Milliseconds(1));
}

TEST(TimeByRole, LeavesOutRolesWithoutATimeline) {
  const Outcome outcome = PipelineOutcome({});
  const std::vector<RankBreakdown> last = {outcome.prediction->by_rank.back()};
  const std::vector<RoleTime> times = TimeByRole(outcome.plan, last);
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].name, "stage 1");
}

// Roles of a pipeline are of equal size, so the mean over roles is the mean over ranks.
TEST(TimeByRole, OfAPipelineAveragesToTheStepsBreakdown) {
  const Outcome outcome = PipelineOutcome({.ranks = 4, .data = 2});
  Duration bubbles;
  for (const RoleTime& time : TimeByRole(outcome.plan, outcome.prediction->by_rank))
    bubbles += time.breakdown.bubble;
  EXPECT_GT(bubbles, Duration());
  EXPECT_NEAR(bubbles / Microseconds(4), outcome.prediction->breakdown.bubble / Microseconds(1), 1e-3);
}

}  // namespace
}  // namespace windtunnel
