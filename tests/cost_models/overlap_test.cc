#include "cost_models/overlap.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace windtunnel {
namespace {

// The rates that the model of sim/core_sharing.h yields for `ranks` computing threads (weight 1) and as many
// flows on one core.
struct Rates {
  double collective, compute;
};
Rates RatesOf(const OverlapFit& fit, int ranks) {
  double share = fit.weight / (ranks * (1 + fit.weight));  // an equal split by weight
  share = std::min(share, fit.core_share);
  return {share / fit.core_share, (1.0 / ranks - share) * ranks * fit.compute_efficiency};
}

// d = 0.8, r = 0.5: s = 0.4, w = 0.4 / 0.6 = 2/3; q = 0.48: e = 0.48 / 0.6 = 0.8.
TEST(FitOverlap, FollowsTheWorkedNumber) {
  const OverlapFit fit = FitOverlap({.core_share = 0.8, .collective_rate = 0.5, .compute_rate = 0.48});
  EXPECT_NEAR(fit.core_share, 0.8, 1e-12);
  EXPECT_NEAR(fit.weight, 2.0 / 3, 1e-12);
  EXPECT_NEAR(fit.compute_efficiency, 0.8, 1e-12);
}

// Two ranks on the core: s = 0.5 x 0.4 = 0.2 each, 1/2 - 0.2 = 0.3 left: w = 2/3. A computing thread has 0.3
// of its 0.5, that is 0.6; q = 0.54: e = 0.9.
TEST(FitOverlap, CountsAllRanksOfACore) {
  const OverlapFit fit =
      FitOverlap({.core_share = 0.4, .collective_rate = 0.5, .compute_rate = 0.54, .ranks_per_core = 2});
  EXPECT_NEAR(fit.weight, 2.0 / 3, 1e-12);
  EXPECT_NEAR(fit.compute_efficiency, 0.9, 1e-12);
}

TEST(FitOverlap, AnUndisturbedCollectiveGetsTheLargestWeight) {
  const OverlapFit fit = FitOverlap({.core_share = 0.3, .collective_rate = 1, .compute_rate = 0.7});
  EXPECT_EQ(fit.weight, kLargestOverlapWeight);
  EXPECT_NEAR(fit.core_share, 0.3, 1e-12);
  EXPECT_NEAR(fit.compute_efficiency, 1.0, 1e-12);
}

// Alone the collective takes the whole core (it spins), but a computing thread beside it keeps 0.9. The
// collective took 0.1, at half speed, so it needs 0.2.
TEST(FitOverlap, BelievesTheComputingThreadAboutCoreTime) {
  const OverlapFit fit = FitOverlap({.core_share = 1, .collective_rate = 0.5, .compute_rate = 0.9});
  EXPECT_NEAR(fit.core_share, 0.2, 1e-12);
  EXPECT_NEAR(fit.weight, 0.1 / 0.9, 1e-12);
  EXPECT_NEAR(fit.compute_efficiency, 1, 1e-12);
}

TEST(FitOverlap, WithEnginesOfItsOwnOnlyEfficiencyIsLeft) {
  const OverlapFit fit = FitOverlap({.core_share = 0, .collective_rate = 0.8, .compute_rate = 0.93});
  EXPECT_EQ(fit.core_share, 0);
  EXPECT_EQ(fit.compute_efficiency, 0.93);
}

RC_GTEST_PROP(FitOverlap, TheModelGivesBackWhatWasMeasured, ()) {
  const int ranks = *rc::gen::inRange(1, 4);
  const MeasuredOverlap measured{.core_share = *rc::gen::inRange(5, 101) / 100.0 / ranks,
                                 .collective_rate = *rc::gen::inRange(10, 99) / 100.0,
                                 .compute_rate = *rc::gen::inRange(10, 99) / 100.0,
                                 .ranks_per_core = ranks};
  const Rates rates = RatesOf(FitOverlap(measured), ranks);
  RC_ASSERT(std::abs(rates.collective - measured.collective_rate) < 1e-9);
  RC_ASSERT(std::abs(rates.compute - measured.compute_rate) < 1e-9);
}

}  // namespace
}  // namespace windtunnel
