#include "cost_models/disturbed_costs.h"

#include <gtest/gtest.h>

#include "cost_models/cost_keys.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// Times of the plan's kernels, of which the last fifth are `longest` times the others.
Profile MeasuredFor(const Plan& plan, double longest) {
  Profile profile;
  for (const Op& op : plan.roles[0].steady.ops) {
    if (IsCommunication(op.kind)) continue;
    std::vector<Duration> samples(8, Microseconds(100));
    samples.resize(10, Microseconds(100 * longest));
    profile.kernels.push_back({CostKey(op), RanksPerNode(plan), 10, Distribution::FromSamples(samples)});
  }
  return profile;
}

TEST(DisturbedCosts, AreThoseWhoseMeansAreFarAboveTheirMedians) {
  const Plan plan = *CompilePlan(TinyGpt());
  EXPECT_NEAR(MeansOverMedians(MeasuredFor(plan, 1), plan), 1, 1e-9);
  EXPECT_EQ(DescribeDisturbance(MeasuredFor(plan, 2), plan), "");
  EXPECT_GT(MeansOverMedians(MeasuredFor(plan, 20), plan), 2);
  EXPECT_NE(DescribeDisturbance(MeasuredFor(plan, 20), plan), "");
}

TEST(DisturbedCosts, AreOfThePlansOwnOperators) {
  const Plan plan = *CompilePlan(TinyGpt()), other = *CompilePlan(TinyMlp());
  EXPECT_EQ(MeansOverMedians(MeasuredFor(other, 20), plan), 1);
  EXPECT_EQ(MeansOverMedians({}, plan), 1);
}

}  // namespace
}  // namespace windtunnel
