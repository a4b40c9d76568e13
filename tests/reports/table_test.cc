#include "reports/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/reports/sample_outcome.h"
#include "tests/reports/sample_pipeline.h"

namespace windtunnel {
namespace {

// Counts code points, which are columns in these texts.
size_t Columns(const std::string& line) {
  size_t columns = 0;
  for (unsigned char c : line) columns += (c & 0xC0) != 0x80;
  return columns;
}

testing::AssertionResult Has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no '" << part << "' in\n" << text;
}

TEST(OutcomeTable, FitsAHundredColumns) {
  std::istringstream lines(OutcomeTable(SampleOutcome(), Ink(false)));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(Columns(line), 100u) << line;
}

TEST(OutcomeTable, ShowsBothSidesTheErrorAndWhereItComesFrom) {
  std::string table = OutcomeTable(SampleOutcome(), Ink(false));
  EXPECT_TRUE(Has(table, "2 ranks, data 2 (ddp)"));
  EXPECT_TRUE(Has(table, "11.0 ms"));
  EXPECT_TRUE(Has(table, "+10.0 %"));
  EXPECT_TRUE(Has(table, "wait all_reduce"));
  EXPECT_TRUE(Has(table, "5.00 pp"));
  EXPECT_TRUE(Has(table, "measured 75 % · interpolated 25 %"));
  EXPECT_TRUE(Has(table, "within tolerance: step time +10.0 % (±20 %), peak memory exact"));
}

TEST(OutcomeTable, OfOneSideHasNoColumnOfTheOther) {
  Outcome predicted = SampleOutcome(), measured = SampleOutcome();
  predicted.measurement.reset();
  measured.prediction.reset();
  std::string prediction = OutcomeTable(predicted, Ink(false)), run = OutcomeTable(measured, Ink(false));
  EXPECT_FALSE(Has(prediction, "tolerance"));
  EXPECT_FALSE(Has(prediction, "10.0 ms"));
  EXPECT_FALSE(Has(run, "predicted"));
  EXPECT_FALSE(Has(run, "11.0 ms"));
  EXPECT_TRUE(Has(run, "loss: 2.5000 → 2.2500 over 2 steps"));
}

TEST(OutcomeTable, SaysHowLongATrainingTakes) {
  Outcome outcome = SampleOutcome();
  outcome.measurement.reset();
  outcome.train_tokens = 8.192e12;
  const std::string table = OutcomeTable(outcome, Ink(false));
  EXPECT_TRUE(Has(table, "8.19T samples"));
  EXPECT_TRUE(Has(table, "1.00B\n"));
  EXPECT_TRUE(Has(table, "127 days\n"));
  EXPECT_TRUE(Has(table, "6.11K\n"));
}

TEST(OutcomeTable, HasEscapesOnlyWithColour) {
  EXPECT_FALSE(Has(OutcomeTable(SampleOutcome(), Ink(false)), "\033"));
  EXPECT_TRUE(Has(OutcomeTable(SampleOutcome(), Ink(true)), "\033[32mwithin tolerance"));
}

TEST(VerdictLine, SaysByHowMuchMemoryIsOff) {
  Outcome outcome = SampleOutcome();
  outcome.measurement->memory[0].steady.allocated = MiB(35);
  EXPECT_TRUE(Has(VerdictLine(outcome, Ink(false)), "OUTSIDE TOLERANCE"));
  EXPECT_TRUE(Has(VerdictLine(outcome, Ink(false)), "peak memory off by 7.00 MiB (20.0 %, allowed 0.0 %)"));
}

// Of a prediction alone, what -q leaves.
TEST(VerdictLine, SaysOfAPredictionOnlyThatItDoesNotFit) {
  Outcome outcome = SampleOutcome();
  outcome.measurement.reset();
  EXPECT_EQ(VerdictLine(outcome, Ink(false)), "");  // the device's memory is not known
  outcome.prediction->device_memory =
      outcome.prediction->peak_reserved + outcome.prediction->outside_allocator;
  EXPECT_EQ(VerdictLine(outcome, Ink(false)), "");
  outcome.prediction->device_memory = MiB(1);
  outcome.prediction->peak_reserved = MiB(2);
  EXPECT_EQ(VerdictLine(outcome, Ink(false)),
            "sample: DOES NOT FIT in the device's 1.00 MiB (explain says what would)");
  EXPECT_TRUE(Has(OutcomeTable(outcome, Ink(false)), "DOES NOT FIT in the device's 1.00 MiB"));
}

// Steps whose gradients overflow change nothing; a scale that is too large is one for all of them.
TEST(DescribeDivergence, SaysWhereNoStepHasChangedAParameter) {
  Measurement measurement;
  measurement.losses = {2.0, 2.0, 2.0};
  measurement.skipped_steps = {0, 1};
  EXPECT_EQ(DescribeDivergence(measurement), std::nullopt);
  measurement.skipped_steps = {0, 1, 2};
  EXPECT_EQ(DescribeDivergence(measurement),
            "all 3 steps were skipped, since their gradients overflowed: no parameter has changed "
            "(precision.loss_scale)");
}

TEST(DescribeEvaluation, CountsSequencesAlsoWhereTheLossIsNoNumber) {
  const double nan = std::nan("");
  EXPECT_EQ(DescribeEvaluation({.loss = 0, .perplexity = 1, .sequences = 40}),
            "loss 0.0000, perplexity 1, on 40 held-out sequences");
  EXPECT_EQ(DescribeEvaluation({.loss = nan, .perplexity = nan, .sequences = 40}),
            "loss nan, on 40 held-out sequences");
  EXPECT_EQ(DescribeEvaluation({.loss = 0.5, .sequences = 40}), "loss 0.5000, on 40 held-out samples");
}

TEST(OutcomeTable, SaysWhenOthersTookTheMachine) {
  Outcome outcome = SampleOutcome();
  outcome.measurement->cores = SharedCores{2, 1.9, 0.05};
  EXPECT_FALSE(Has(OutcomeTable(outcome, Ink(false)), "busy"));
  EXPECT_FALSE(Has(VerdictLine(outcome, Ink(false)), "busy"));
  outcome.measurement->cores = SharedCores{2, 1.04, 0.91};
  const std::string said = "the machine was busy: this took 1.0 of 2 cores, others 0.9";
  EXPECT_TRUE(Has(OutcomeTable(outcome, Ink(false)), said));
  EXPECT_TRUE(Has(VerdictLine(outcome, Ink(false)), "; " + said));
  outcome.measurement->cores = SharedCores{1, 0.5, 0.5};
  EXPECT_TRUE(
      Has(OutcomeTable(outcome, Ink(false)), "the machine was busy: this took 0.5 of 1 core, others 0.5"));
}

TEST(OutcomeTable, SaysWhenRanksSharedCores) {
  Outcome outcome = SampleOutcome();
  outcome.measurement->cores = SharedCores{2, 1.9, 0.05, 4};
  EXPECT_TRUE(Has(OutcomeTable(outcome, Ink(false)), "4 ranks shared 2 cores"));
  outcome.measurement->cores = SharedCores{1, 1.0, 0.0, 2};
  EXPECT_TRUE(Has(OutcomeTable(outcome, Ink(false)), "2 ranks shared 1 core"));
}

TEST(OutcomeTable, ShowsReservedMemoryOfPytorchsAllocator) {
  Outcome outcome = SampleOutcome();
  EXPECT_FALSE(Has(OutcomeTable(outcome, Ink(false)), "(reserved)"));
  outcome.plan.scenario.allocator = AllocatorKind::kPytorch;
  EXPECT_TRUE(Has(OutcomeTable(outcome, Ink(false)), "(reserved)"));
}

TEST(OutcomeTable, HasARowOfHostMemoryOnlyWhereThereIsAny) {
  Outcome outcome = SampleOutcome();
  EXPECT_FALSE(Has(OutcomeTable(outcome, Ink(false)), "host memory"));
  outcome.prediction->memory[0].steady.host_allocated = MiB(24);
  EXPECT_TRUE(Has(OutcomeTable(outcome, Ink(false)), "host memory of a rank"));
}

TEST(OutcomeTable, HasTheBubbleOfEveryStage) {
  const std::string table = OutcomeTable(PipelineOutcome({}), Ink(false));
  EXPECT_TRUE(Has(table, "2 ranks, pipeline 2 (1f1b) · 2 stages of 4 layers\n  2 × 16 tokens a micro-batch"));
  EXPECT_TRUE(Has(table, "    bubble of stage 0"));
  EXPECT_TRUE(Has(table, "    bubble of stage 1"));
  EXPECT_FALSE(Has(OutcomeTable(SampleOutcome(), Ink(false)), "bubble of"));
}

TEST(OutcomeTable, ComparesTheBubbleOfEveryStage) {
  Outcome outcome = PipelineOutcome({});
  Measurement measurement;
  measurement.step_times.assign(10, outcome.prediction->p50);
  measurement.timelines = outcome.prediction->timelines;
  measurement.breakdown = outcome.prediction->breakdown;
  measurement.by_rank = outcome.prediction->by_rank;
  outcome.measurement = measurement;
  const std::string table = OutcomeTable(outcome, Ink(false));
  const std::string row = table.substr(table.find("    bubble of stage 1"));
  EXPECT_TRUE(Has(row.substr(0, row.find('\n')), "+0.0 pp"));
}

size_t BubbleRows(const std::string& table) {
  size_t rows = 0;
  for (size_t at = table.find("bubble of"); at != std::string::npos; at = table.find("bubble of", at + 1))
    ++rows;
  return rows;
}

TEST(OutcomeTable, FoldsManyStages) {
  const std::string table =
      OutcomeTable(PipelineOutcome({.ranks = 16, .micro_batches = 32, .layers = 16}), Ink(false));
  EXPECT_LE(BubbleRows(table), 8u) << table;
  EXPECT_TRUE(Has(table, "    bubble of stages "));
  const std::string looped = OutcomeTable(
      PipelineOutcome(
          {.schedule = "interleaved", .ranks = 12, .virtual_stages = 2, .micro_batches = 24, .layers = 24}),
      Ink(false));
  EXPECT_LE(BubbleRows(looped), 8u) << looped;
  std::istringstream lines(table + looped);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(Columns(line), 100u) << line;
}

// Peaks of 20, 28, 28 and 24 MiB: the middle two share a row, and their categories stand below it.
TEST(OutcomeTable, JoinsRolesOfEqualMemoryAndDetailsTheLargest) {
  Outcome outcome = SampleOutcome();
  outcome.measurement.reset();
  const PredictedMemory one = outcome.prediction->memory[0];
  outcome.prediction->memory = {one, one, one, one};
  const int64_t mebibytes[] = {20, 28, 28, 24};
  for (int role = 0; role < 4; ++role) {
    outcome.prediction->memory[role].ranks = {2 * role, 2 * role + 1};
    outcome.prediction->memory[role].steady.allocated = MiB(mebibytes[role]);
  }
  outcome.prediction->memory[0].steady.by_category[static_cast<int>(Category::kActivations)] = MiB(8);
  const std::string table = OutcomeTable(outcome, Ink(false));
  const size_t first = table.find("  ranks 0-1 "), joined = table.find("  ranks 2-5 "),
               detail = table.find("    activations "), last = table.find("  ranks 6-7 ");
  ASSERT_NE(last, std::string::npos) << table;
  EXPECT_LT(first, joined);
  EXPECT_LT(joined, detail);
  EXPECT_LT(detail, last);
  EXPECT_TRUE(Has(table.substr(detail, 60), "16.0 MiB"));
}

}  // namespace
}  // namespace windtunnel
