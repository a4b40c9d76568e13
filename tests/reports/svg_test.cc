#include "reports/svg.h"

#include <gtest/gtest.h>

#include "tests/reports/sample_outcome.h"

namespace windtunnel {
namespace {

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(TimelineSvg, HasALanePerRankStreamAndSide) {
  std::string svg = TimelineSvg(SampleOutcome());
  EXPECT_EQ(Count(svg, ">rank 0 compute<"), 2u);
  EXPECT_EQ(Count(svg, ">rank 1 data<"), 2u);
  EXPECT_LT(svg.find(">predicted: 11.0 ms<"), svg.find(">measured: 11.0 ms<"));
}

TEST(TimelineSvg, MergesNeighboursOfOneColour) {
  // Forward and backward touch and are one rectangle: per rank gemm, copy, gemm, optimizer and the
  // all-reduce.
  std::string svg = TimelineSvg(SampleOutcome());
  EXPECT_EQ(Count(svg, "fill=\"#4c78a8\""), 4u * 2 + 1)
      << "two of gemm in each of four lanes, and the legend";
}

TEST(TimelineSvg, EscapesNames) {
  Outcome outcome = SampleOutcome();
  outcome.plan.scenario.name = "a<b>&\"c\"";
  EXPECT_NE(TimelineSvg(outcome).find("a&lt;b&gt;&amp;&quot;c&quot;"), std::string::npos);
}

TEST(TimelineSvg, DrawsNoMoreRanksThanAsked) {
  EXPECT_EQ(Count(TimelineSvg(SampleOutcome(), 1), ">rank 1 "), 0u);
}

}  // namespace
}  // namespace windtunnel
