#include "reports/svg.h"

#include <gtest/gtest.h>

#include "tests/reports/sample_outcome.h"
#include "tests/reports/sample_pipeline.h"

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

TEST(TimelineSvg, OfAPipelineHasALanePerPipelineRank) {
  Outcome outcome = PipelineOutcome({.ranks = 4, .data = 2});
  const std::string svg = TimelineSvg(outcome);
  for (const char* label : {">rank 0<", ">rank 2<", ">rank 4<", ">rank 6<", ">stage 3<"})
    EXPECT_EQ(Count(svg, label), 1u) << label << " of the first data-parallel rank";
  EXPECT_EQ(Count(svg, ">rank 1<"), 0u);
  for (const char* word :
       {">forward<", ">backward<", ">optimizer<", ">gradient sync<", ">messages<", ">barrier<"})
    EXPECT_EQ(Count(svg, word), 1u) << word;
  EXPECT_EQ(Count(svg, "weight gradient"), 0u);
}

TEST(TimelineSvg, OfAPipelineIsOfTheFirstTensorRank) {
  const std::string svg = TimelineSvg(PipelineOutcome({.data = 2, .tensor = 2}));
  EXPECT_EQ(Count(svg, ">rank 0<"), 1u);
  EXPECT_EQ(Count(svg, ">rank 4<"), 1u);
  EXPECT_EQ(Count(svg, ">rank "), 2u);
}

TEST(TimelineSvg, NumbersEachMicroBatchOfAPipeline) {
  const std::string svg = TimelineSvg(PipelineOutcome({}));
  for (const char* number : {">0</text>", ">1</text>", ">2</text>", ">3</text>"})
    EXPECT_GE(Count(svg, number), 4u) << "forward and backward of two ranks";
}

TEST(TimelineSvg, OfAPipelineHasBothSidesOnOneAxis) {
  Outcome outcome = PipelineOutcome({});
  outcome.measurement.emplace();
  outcome.measurement->timelines = outcome.prediction->timelines;
  outcome.measurement->breakdown = outcome.prediction->breakdown;
  const std::string svg = TimelineSvg(outcome);
  EXPECT_EQ(Count(svg, ">rank 1<"), 2u);
  EXPECT_LT(svg.find(">predicted: "), svg.find(">measured: "));
}

TEST(TimelineSvg, TintsTheStagesOfARank) {
  const std::string svg = TimelineSvg(PipelineOutcome({.schedule = "interleaved", .virtual_stages = 2}));
  EXPECT_EQ(Count(svg, "stroke=\"#3b71b5\""), 2u) << "forwards of the first stage of either rank";
  EXPECT_EQ(Count(svg, "stroke=\"#adc3e0\""), 2u) << "of the second";  // 255 - 0.42 (255 - 59) = 173 = 0xad
  EXPECT_EQ(Count(svg, ">stages 1, 3<"), 1u);
}

TEST(TimelineSvg, StaysSmallWithSixteenRanksAndManyMicroBatches) {
  const std::string svg = TimelineSvg(PipelineOutcome(
      {.schedule = "zb_v", .ranks = 16, .virtual_stages = 2, .micro_batches = 192, .layers = 32}));
  EXPECT_LT(svg.size(), 1000000u);
  EXPECT_EQ(Count(svg, ">stages 15, 16<"), 1u);
}

}  // namespace
}  // namespace windtunnel
