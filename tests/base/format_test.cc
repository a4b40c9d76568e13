#include "base/format.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

TEST(FormatDuration, ShowsThreeDigitsAndAUnit) {
  EXPECT_EQ(FormatDuration(Milliseconds(12.34)), "12.3 ms");
  EXPECT_EQ(FormatDuration(Microseconds(1.234)), "1.23 us");
  EXPECT_EQ(FormatDuration(Milliseconds(123.4)), "123 ms");
  EXPECT_EQ(FormatDuration(Duration()), "0 ps");
  EXPECT_EQ(FormatDuration(Seconds(75)), "75.0 s");
  EXPECT_EQ(FormatDuration(-Milliseconds(2)), "-2.00 ms");
}

TEST(FormatBytes, UsesBinaryUnits) {
  EXPECT_EQ(FormatBytes(MiB(25)), "25.0 MiB");
  EXPECT_EQ(FormatBytes(Bytes(1000)), "1000 B");
  EXPECT_EQ(FormatBytes(GiB(80)), "80.0 GiB");
}

TEST(FormatRates, UseDecimalUnits) {
  EXPECT_EQ(FormatBandwidth(GBps(1.25)), "1.25 GB/s");
  EXPECT_EQ(FormatFlopRate(Tflops(989)), "989 TFLOP/s");
}

TEST(FormatCount, ShortensParameterCounts) {
  EXPECT_EQ(FormatCount(124'439'808), "124M");
  EXPECT_EQ(FormatCount(1.558e9), "1.56B");
  EXPECT_EQ(FormatCount(12), "12");
}

TEST(FormatTime, HasNoUnitForNone) {
  EXPECT_EQ(FormatTime(Duration()), "0");
  EXPECT_EQ(FormatTime(Milliseconds(12.3)), "12.3 ms");
}

TEST(FormatPercent, HasOneDecimal) {
  EXPECT_EQ(FormatPercent(0.031), "3.1 %");
  EXPECT_EQ(FormatPercent(1), "100.0 %");
}

TEST(FormatShape, HasTheExtentsInBrackets) {
  EXPECT_EQ(FormatShape({50257, 768}), "[50257 x 768]");
  EXPECT_EQ(FormatShape({}), "[]");
}

TEST(Counted, PutsTheNounIntoThePluralUnlessThereIsOne) {
  EXPECT_EQ(Counted(1, "rank"), "1 rank");
  EXPECT_EQ(Counted(2, "rank"), "2 ranks");
  EXPECT_EQ(Counted(0, "node"), "0 nodes");
  EXPECT_EQ(Counted(4, "micro-batch"), "4 micro-batches");
  EXPECT_EQ(Counted(3, "process"), "3 processes");
}

TEST(FormatSignedPercent, KeepsTheSign) {
  EXPECT_EQ(FormatSignedPercent(0.031), "+3.1 %");
  EXPECT_EQ(FormatSignedPercent(-0.2), "-20.0 %");
}

}  // namespace
}  // namespace windtunnel
