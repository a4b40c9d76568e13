#include "base/normal.h"

#include <gtest/gtest.h>

#include <cmath>

namespace windtunnel {
namespace {

TEST(Normal, LogarithmIsTheLibrarys) {
  for (double x = 1e-12; x < 1e12; x *= 1.37)
    EXPECT_NEAR(NaturalLog(x), std::log(x), 1e-14 * (1 + std::fabs(std::log(x))));
  EXPECT_EQ(NaturalLog(1), 0);
}

TEST(Normal, RootIsTheLibrarys) {
  for (int64_t n : {1, 2, 3, 7, 127, 1023, 16383}) {
    for (double u : {1e-9, 0.01, 0.5, 0.999})
      EXPECT_NEAR(NthRoot(u, n), std::pow(u, 1.0 / static_cast<double>(n)), 1e-14);
  }
}

// Abramowitz and Stegun, table 26.1.
TEST(Normal, QuantilesAreTheTables) {
  EXPECT_EQ(NormalQuantile(0.5), 0);
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963985, 1e-8);
  EXPECT_NEAR(NormalQuantile(0.999), 3.090232306, 1e-8);
  EXPECT_NEAR(NormalQuantile(0.01), -2.326347874, 1e-8);
  EXPECT_NEAR(NormalQuantile(0.3), -0.524400513, 1e-8);
}

// The largest of n normal values: 1/sqrt(pi) for two, Tippett's tables beyond.
TEST(Normal, LargestOfSeveral) {
  EXPECT_NEAR(LargestNormal(1).mean, 0, 1e-9);
  EXPECT_NEAR(LargestNormal(1).variance, 1, 2e-3);
  EXPECT_NEAR(LargestNormal(2).mean, 0.5641896, 1e-3);
  EXPECT_NEAR(LargestNormal(8).mean, 1.4236, 2e-3);
  EXPECT_NEAR(LargestNormal(100).mean, 2.5076, 3e-3);
  EXPECT_NEAR(LargestNormal(1000).mean, 3.2414, 5e-3);
  EXPECT_NEAR(LargestNormal(1000).variance, 0.1233, 5e-3);
}

}  // namespace
}  // namespace windtunnel
