#include "sim/predict.h"

#include <gtest/gtest.h>

#include "tests/sim/fixtures.h"

namespace windtunnel {
namespace {

using testing::Describe;
using testing::FakeCosts;
using testing::PlanBuilder;

// A step of 100 us of kernels and a bucket of 40 us of which half is hidden, on two ranks.
Plan TwoRanks() {
  PlanBuilder b(2);
  const BufferId weights = b.Alloc("weights", MiB(4), Category::kParameters);
  b.Kernel("forward", 40);
  const OpIndex bucket = b.Collective("bucket", 40, {b.Kernel("backward 1", 20)});
  b.Kernel("backward 2", 20);
  b.Kernel("optimizer", 20, {bucket});
  b.Free(weights);
  b.Barrier();
  return b.Build();
}

// Times between 0.9 and 1.2 of the median.
FakeCosts Spread() {
  FakeCosts costs;
  std::array<Duration, Distribution::kCount> quantiles;
  const double factors[] = {0.90, 0.91, 0.93, 0.95, 0.98, 1.00, 1.02, 1.06, 1.10, 1.15, 1.18, 1.20};
  for (size_t i = 0; i < Distribution::kCount; ++i) quantiles[i] = Microseconds(factors[i]);
  costs.spread = Distribution::FromQuantiles(quantiles);
  costs.dispatch = Nanoseconds(100);
  costs.barrier = Microseconds(2);
  costs.cores = 2;
  costs.sharing.core_share = 0.5;
  costs.drift = 0.02;
  return costs;
}

// Everything in a prediction, as text.
std::string Everything(const Plan& plan, const Prediction& p) {
  std::string text = Describe(plan, p.timelines);
  for (Duration time : p.step_times) text += fmt::format("{} ", time.picoseconds());
  for (const auto& [name, time] : p.by_operator) text += fmt::format("\n{} {}", name, time.picoseconds());
  text += fmt::format("\n{} {} {} {} {}", p.breakdown.compute.picoseconds(), p.events, p.measured_share,
                      p.interpolated_share, p.modelled_share);
  return text;
}

TEST(Predict, IsTheSameToTheLastBitEveryTime) {
  const Plan plan = TwoRanks();
  const std::string once = Everything(plan, Predict(plan, Spread(), {.seed = 3}).value());
  EXPECT_EQ(once, Everything(plan, Predict(plan, Spread(), {.seed = 3}).value()));
  EXPECT_NE(once, Everything(plan, Predict(plan, Spread(), {.seed = 4}).value()));
}

// Parts and operators are of the same steps: ranks wait as long in the one as in the other.
TEST(Predict, PartsWaitAsLongAsOperatorsDo) {
  const Plan plan = TwoRanks();
  const Prediction p = Predict(plan, Spread(), {.seed = 3}).value();
  Duration sum, waited, of_ranks;
  for (const auto& [name, time] : p.by_operator) {
    sum += time;
    if (name.starts_with("wait ")) waited += time;
  }
  EXPECT_GT(waited, Duration());
  EXPECT_NEAR(p.breakdown.exposed_communication / p.p50, waited / sum, 1e-6);
  EXPECT_NEAR(p.breakdown.step / p.p50, 1, 1e-6);
  ASSERT_EQ(p.by_rank.size(), 2u);
  for (const RankBreakdown& rank : p.by_rank) of_ranks += rank.parts.exposed_communication;
  EXPECT_NEAR(of_ranks / p.breakdown.exposed_communication, 2, 1e-6);
}

// The barrier that ends a step moves nothing; ranks that are early wait in it.
TEST(Predict, CommunicationIsWithoutTheBarrier) {
  EXPECT_EQ(Predict(TwoRanks(), FakeCosts(), {}).value().breakdown.communication, Microseconds(40));
}

// forward 40, backward 20: the bucket takes 60-100, beside backward 2 (60-80); optimizer 100-120.
TEST(Predict, WithoutSpreadEveryReplicateIsTheHandComputedStep) {
  const Plan plan = TwoRanks();
  const Prediction p = Predict(plan, FakeCosts(), {.replicates = 11}).value();
  ASSERT_EQ(p.step_times.size(), 11u);
  for (Duration time : p.step_times) EXPECT_EQ(time, Microseconds(120));
  EXPECT_EQ(p.breakdown.compute, Microseconds(100));
  EXPECT_EQ(p.breakdown.exposed_communication, Microseconds(20));
  EXPECT_EQ(p.by_operator.at("copy"), Microseconds(100));
  EXPECT_EQ(p.by_operator.at("wait all_reduce"), Microseconds(20));
  EXPECT_EQ(p.outside_allocator, MiB(7));
}

// By nearest rank: of 101 sorted times, ceil(0.1 x 101) = 11, ceil(0.5 x 101) = 51 and ceil(0.9 x 101) = 91.
TEST(Predict, TakesPercentilesByNearestRank) {
  const Prediction p = Predict(TwoRanks(), Spread(), {}).value();
  EXPECT_EQ(p.p10, p.step_times[10]);
  EXPECT_EQ(p.p50, p.step_times[50]);
  EXPECT_EQ(p.p90, p.step_times[90]);
  EXPECT_LT(p.p10, p.p50);
  EXPECT_LT(p.p50, p.p90);
}

TEST(Predict, ShowsTheTimelinesOfTheMedianReplicate) {
  const Plan plan = TwoRanks();
  const Prediction p = Predict(plan, Spread(), {}).value();
  EXPECT_EQ(std::max(p.timelines[0].end, p.timelines[1].end), p.p50);
  ASSERT_EQ(p.timelines[0].memory.size(), 2u);
  EXPECT_EQ(p.timelines[0].memory[0].allocated, MiB(4));
  EXPECT_EQ(p.timelines[0].memory[0].time, Duration());
  EXPECT_EQ(p.timelines[0].memory[1].allocated, Bytes(0));
  EXPECT_GT(p.timelines[0].memory[1].time, Microseconds(100));
}

TEST(Predict, TimeByOperatorAddsUpToTheMeanOfTheMiddleHalf) {
  const Prediction p = Predict(TwoRanks(), Spread(), {}).value();
  Duration sum, mean;
  for (const auto& [name, time] : p.by_operator) sum += time;
  for (int i = 25; i <= 75; ++i) mean += p.step_times[i];  // nearest ranks 26 and 76 of 101
  EXPECT_NEAR(sum / Microseconds(1), (mean / 51) / Microseconds(1), 1e-3);
}

// On each rank 100 of kernels and 0.6 of dispatch are measured; the bucket and the barrier, 40 and 0 at their
// medians, are modelled.
TEST(Predict, SharesBySourceAreOfTheBusyTime) {
  FakeCosts costs = Spread();
  costs.sharing.source = CostSource::kModelled;
  costs.barrier = Duration();
  const Prediction p = Predict(TwoRanks(), costs, {}).value();
  EXPECT_NEAR(p.modelled_share, 40 / 140.6, 1e-9);
  EXPECT_NEAR(p.measured_share, 100.6 / 140.6, 1e-9);
  EXPECT_EQ(p.interpolated_share, 0);
}

// Rank 1's kernels take twice as long: forward 80, backward 120; the bucket 120-160 while rank 0 waits;
// optimizer 160-200.
TEST(Predict, AStragglerHoldsEverybodyUp) {
  Plan plan = TwoRanks();
  plan.scenario.cluster.straggler = {.rank = 1, .slowdown = 2};
  const Prediction p = Predict(plan, FakeCosts(), {}).value();
  EXPECT_EQ(p.p50, Microseconds(200));
  EXPECT_EQ(BreakDown(p.timelines[0], plan.roles[0], plan.roles[0].steady).compute, Microseconds(100));
}

TEST(Predict, JitterSpreadsTheStepAndKeepsItsMiddle) {
  Plan plan = TwoRanks();
  plan.scenario.cluster.jitter = 0.1;
  const Prediction p = Predict(plan, FakeCosts(), {}).value();
  EXPECT_LT(p.p10, p.p50);
  EXPECT_LT(p.p50, p.p90);
  EXPECT_NEAR(p.p50 / Microseconds(1), 124, 6);  // above 120: a collective waits for the slower of two
}

// The common mode alone: its levels are the middles of 101 slices, so the median is exactly 1, p10 (the 11th
// slice, level 10.5 / 101) is 1 + 0.02 (2 x 0.10396 - 1) = 0.98416. It scales kernels, not collectives.
TEST(Predict, TheCommonModeScalesAllKernelsOfAReplicate) {
  PlanBuilder b(1);
  b.Kernel("work", 100);
  FakeCosts costs;
  costs.drift = 0.02;
  const Prediction p = Predict(b.Build(), costs, {}).value();
  EXPECT_EQ(p.p50, Microseconds(100));
  EXPECT_NEAR(p.p10 / Microseconds(1), 98.416, 1e-3);
}

// A step with this many draws is simulated only a few times, at levels from the whole distribution of the
// common mode.
TEST(Predict, FewReplicatesHaveTheWholeCommonModeToo) {
  PlanBuilder b(1);
  for (int i = 0; i < 60'000; ++i) b.Kernel("kernel", 1);
  FakeCosts costs;
  costs.drift = 0.5;
  const Prediction p = Predict(b.Build(), costs, {}).value();
  ASSERT_EQ(p.step_times.size(), 41u);
  EXPECT_EQ(p.p50, Microseconds(60'000));
  EXPECT_NEAR(p.step_times.front() / Microseconds(60'000), 0.5, 0.02);
  EXPECT_NEAR(p.step_times.back() / Microseconds(60'000), 1.5, 0.02);
}

// Shifts of equal size over different links, which have the same key in profiles.
TEST(Predict, CostsShiftsByTheirDistance) {
  struct ByDistance : FakeCosts {
    Result<CommunicationCost> Communication(const Op& op, const Group& group) const override {
      WT_ASSIGN_OR_RETURN(CommunicationCost cost, FakeCosts::Communication(op, group));
      const auto* shift = std::get_if<Collective>(&op.kind);
      if (shift != nullptr) cost.time = Distribution::Constant(Microseconds(10.0 * shift->distance));
      return cost;
    }
  };
  PlanBuilder b(4);
  b.Collective("near", 1);
  b.Kernel("after", 5, {b.Collective("far", 1)});
  Plan plan = b.Build();
  int distance = 0;
  for (Op& op : plan.roles[0].steady.ops) {
    if (auto* collective = std::get_if<Collective>(&op.kind)) {
      collective->kind = CollectiveKind::kShift;
      collective->distance = ++distance;
    }
  }
  EXPECT_EQ(Predict(plan, ByDistance(), {}).value().p50, Microseconds(10 + 20 + 5));
}

TEST(Predict, PassesOnTheCostModelsError) {
  struct Empty : FakeCosts {
    Result<KernelCost> Kernel(const Op& op) const override {
      return InvalidInput("no cost for '{}'", op.name);
    }
  };
  const auto p = Predict(TwoRanks(), Empty(), {});
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().message, "no cost for 'forward'");
}

TEST(Predict, NeedsAReplicate) { EXPECT_FALSE(Predict(TwoRanks(), FakeCosts(), {.replicates = 0})); }

}  // namespace
}  // namespace windtunnel
