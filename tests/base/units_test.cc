#include "base/units.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

// Properties that hold at compile time.
static_assert(Seconds(1) == Milliseconds(1000));
static_assert(Milliseconds(1) == Microseconds(1000));
static_assert(Microseconds(1) == Nanoseconds(1000));
static_assert(Nanoseconds(1) == Picoseconds(1000));
static_assert(GiB(1) == MiB(1024) && MiB(1) == KiB(1024) && KiB(1) == Bytes(1024));
static_assert(Seconds(3) - Seconds(1) == Seconds(2) && -Seconds(1) < Duration());

TEST(Duration, IsAWholeNumberOfPicosecondsRoundedToNearest) {
  EXPECT_EQ(Nanoseconds(0.0014), Picoseconds(1));
  EXPECT_EQ(Picoseconds(10).Scaled(0.25), Picoseconds(3));
  EXPECT_EQ(Picoseconds(-10).Scaled(0.25), Picoseconds(-3));
  EXPECT_DOUBLE_EQ(Milliseconds(12.5) / Seconds(1), 0.0125);
}

TEST(Duration, StaysAtTheEndOfItsRange) {
  EXPECT_EQ(Seconds(1e300), Duration::Max());
  EXPECT_EQ(Seconds(-1e300), -Duration::Max());
  EXPECT_EQ(Duration::Max() + Seconds(1), Duration::Max());
  EXPECT_EQ(-Duration::Max() - Seconds(1), -Duration::Max());
  EXPECT_EQ(Seconds(1e6) * 1'000'000'000, Duration::Max());
  EXPECT_EQ(Bytes(1) / GBps(1e-300), Duration::Max());
}

TEST(Duration, HasAShareInAnother) {
  EXPECT_DOUBLE_EQ(ShareOf(Seconds(1), Seconds(4)), 0.25);
  EXPECT_EQ(ShareOf(Duration(), Duration()), 0);
}

TEST(Bytes, DivideByBandwidthIntoTime) {
  EXPECT_EQ(Bytes(2'000'000'000) / GBps(2), Seconds(1));
  EXPECT_DOUBLE_EQ((MiB(1) / Seconds(1)).bytes_per_second(), 1048576.0);
}

TEST(Bytes, RoundUpToMultiples) {
  EXPECT_EQ(Bytes(1).RoundedUpTo(Bytes(512)), Bytes(512));
  EXPECT_EQ(Bytes(512).RoundedUpTo(Bytes(512)), Bytes(512));
  EXPECT_EQ(Bytes(0).RoundedUpTo(Bytes(512)), Bytes(0));
}

TEST(Flops, DivideByRateIntoTime) { EXPECT_EQ(Flops(3e12) / Tflops(1.5), Seconds(2)); }

TEST(FlopRate, HasShares) { EXPECT_EQ(Tflops(3) * 0.5, Tflops(1.5)); }

TEST(MulDiv, SurvivesProductsBeyond64Bits) {
  // 9.3 MB for one second in picoseconds: 9.3e6 * 1e12 > 2^63.
  EXPECT_EQ(MulDiv(9'300'000, 1'000'000'000'000, 9'300'000), 1'000'000'000'000);
  EXPECT_EQ(MulDiv(7, 1, 2), 4);  // rounded to nearest
  EXPECT_EQ(MulDiv(9'000'000'000'000'000'000, 3, 1), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace windtunnel
