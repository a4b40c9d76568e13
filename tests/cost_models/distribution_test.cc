#include "cost_models/distribution.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace windtunnel {
namespace {

// 0, 10, …, 1000 ns: 101 samples, so that each level falls on an order statistic.
Distribution Ramp() {
  std::vector<Duration> samples;
  for (int i = 100; i >= 0; --i) samples.push_back(Nanoseconds(10 * i));
  return Distribution::FromSamples(samples);
}

TEST(Distribution, TakesQuantilesOfSamples) {
  EXPECT_EQ(Ramp().Quantile(0), Duration());
  EXPECT_EQ(Ramp().p10(), Nanoseconds(100));
  EXPECT_EQ(Ramp().p50(), Nanoseconds(500));
  EXPECT_EQ(Ramp().p90(), Nanoseconds(900));
  EXPECT_EQ(Ramp().Quantile(1), Nanoseconds(1000));
}

// Type 7: position 0.9 x (4 - 1) = 2.7 of 1, 2, 4, 8 ns: 4 + 0.7 x (8 - 4) = 6.8 ns. The median is 0.5 x 3 =
// 1.5: 3 ns.
TEST(Distribution, InterpolatesBetweenOrderStatistics) {
  const Distribution d =
      Distribution::FromSamples({Nanoseconds(4), Nanoseconds(1), Nanoseconds(8), Nanoseconds(2)});
  EXPECT_EQ(d.p90(), Nanoseconds(6.8));
  EXPECT_EQ(d.p50(), Nanoseconds(3));
}

TEST(Distribution, OneSampleIsAConstant) {
  const Distribution d = Distribution::FromSamples({Microseconds(7)});
  EXPECT_EQ(d.values(), Distribution::Constant(Microseconds(7)).values());
  EXPECT_EQ(d.Mean(), Microseconds(7));
}

// Halfway from level 0.50 (500 ns) to 0.75 (750 ns).
TEST(Distribution, IsLinearBetweenItsLevels) { EXPECT_EQ(Ramp().Quantile(0.625), Nanoseconds(625)); }

// Halfway from level 0.999 (11 ns) to 1 (1011 ns): that is 511 ns.
TEST(Distribution, IsLinearAboveItsLastLevelsButOne) {
  std::array<Duration, Distribution::kCount> values;
  values.fill(Nanoseconds(10));
  values[Distribution::kCount - 2] = Nanoseconds(11);
  values[Distribution::kCount - 1] = Nanoseconds(1011);
  const Distribution d = Distribution::FromQuantiles(values);
  EXPECT_EQ(d.Quantile(0.999), Nanoseconds(11));
  EXPECT_NEAR(static_cast<double>(d.Quantile(0.9995).picoseconds()), 511'000, 1);
  EXPECT_EQ(d.Quantile(1), Nanoseconds(1011));
}

// Half of the weight is spread evenly between 0 and 2 us, the rest is at 2 us: the mean is 0.5 x 1 + 0.5 x 2
// = 1.5 us.
TEST(Distribution, MeanIsThatOfTheQuantileFunction) {
  std::array<Duration, Distribution::kCount> values;
  for (size_t i = 0; i < Distribution::kCount; ++i)
    values[i] = Microseconds(std::min(Distribution::kLevels[i], 0.5) * 4);
  EXPECT_EQ(Distribution::FromQuantiles(values).Mean(), Microseconds(1.5));
  EXPECT_EQ(Ramp().Mean(), Nanoseconds(500));
}

TEST(Distribution, MeanOfTheLongestDurationsIsAsLong) {
  EXPECT_NEAR(Distribution::Constant(Duration::Max()).Mean() / Duration::Max(), 1, 1e-9);
}

TEST(Distribution, ScalesEveryQuantile) { EXPECT_EQ(Ramp().Scaled(1.5).p90(), Nanoseconds(1350)); }

RC_GTEST_PROP(Distribution, QuantilesAscendAndStayWithinTheSamples, ()) {
  const auto numbers =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1'000'000)));
  std::vector<Duration> samples;
  for (int n : numbers) samples.push_back(Picoseconds(n));
  const Distribution d = Distribution::FromSamples(samples);
  const auto [least, most] = std::minmax_element(samples.begin(), samples.end());
  Duration last = *least;
  for (int i = 0; i <= 10'000; ++i) {
    const Duration value = d.Quantile(i / 10'000.0);
    RC_ASSERT(value >= last);
    RC_ASSERT(value <= *most);
    last = value;
  }
}

}  // namespace
}  // namespace windtunnel
