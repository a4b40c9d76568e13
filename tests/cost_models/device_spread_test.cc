// The slowest of several devices, checked against exact expected maxima.
#include "cost_models/device_spread.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

TEST(DeviceSpread, OneDeviceIsTheMean) { EXPECT_NEAR(SlowestOf(1, 0.5), 1, 1e-12); }

TEST(DeviceSpread, DevicesThatAreAlikeAreEquallySlow) { EXPECT_EQ(SlowestOf(1'000'000, 0), 1); }

// Within 0.03 of a deviation. E[largest of n] of the standard normal distribution (Harter 1961): 0.564,
// 1.424, 2.043 (n = 30), 2.746 (n = 200), 3.241 (n = 1,000).
TEST(DeviceSpread, FollowsTheExpectedLargestOfSeveral) {
  EXPECT_NEAR(SlowestOf(2, 1) - 1, 0.5642, 0.03);
  EXPECT_NEAR(SlowestOf(8, 1) - 1, 1.4236, 0.03);
  EXPECT_NEAR(SlowestOf(30, 1) - 1, 2.0428, 0.03);
  EXPECT_NEAR(SlowestOf(200, 1) - 1, 2.7460, 0.03);
  EXPECT_NEAR(SlowestOf(1000, 1) - 1, 3.2414, 0.03);
}

TEST(DeviceSpread, GrowsWithTheDevices) {
  for (int64_t n = 1; n < 200'000; n *= 3) EXPECT_LT(SlowestOf(n, 0.015), SlowestOf(2 * n, 0.015)) << n;
  EXPECT_NEAR(SlowestOf(1024, 0.015), 1.0485, 1e-4);
}

}  // namespace
}  // namespace windtunnel
