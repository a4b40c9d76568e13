#include "reports/table.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/reports/sample_outcome.h"

namespace windtunnel {
namespace {

// Code points, which in these texts are columns.
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

}  // namespace
}  // namespace windtunnel
