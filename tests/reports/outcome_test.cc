#include "reports/outcome.h"

#include <gtest/gtest.h>

#include "tests/reports/sample_outcome.h"

namespace windtunnel {
namespace {

TEST(Compare, GivesThePredictedOverTheMeasuredMedianLessOne) {
  EXPECT_NEAR(Compare(SampleOutcome()).step_time, 0.10, 1e-12);  // 11 ms / 10 ms - 1
}

TEST(Compare, MeasuresMemoryErrorAsTheLargestMagnitudeOverRanks) {
  Outcome outcome = SampleOutcome();
  outcome.measurement->memory[1].steady.allocated = MiB(32);  // predicted 28 MiB
  Comparison comparison = Compare(outcome);
  EXPECT_EQ(comparison.peak_memory, MiB(4));
  EXPECT_DOUBLE_EQ(comparison.peak_memory_share, 4.0 / 32.0);
  EXPECT_FALSE(comparison.within_tolerance()) << "the tolerance of memory is zero";
}

TEST(Compare, HoldsReservedPlusOutsideBytesAgainstTheProcess) {
  // Predicted 40 + 10 MiB; rank 0 grew by 49 MiB (+1), rank 1 by 53 MiB (-3): the larger magnitude, with its
  // sign.
  EXPECT_EQ(Compare(SampleOutcome()).resident, MiB(-3));
}

TEST(Compare, IsWithinToleranceUpToTheToleranceItself) {
  Outcome outcome = SampleOutcome();
  EXPECT_TRUE(Compare(outcome).within_tolerance());
  outcome.plan.scenario.tolerance.step_time = 0.05;
  EXPECT_FALSE(Compare(outcome).within_tolerance());
}

TEST(ClusterInWords, SaysWhatADatasheetDoesNot) {
  Outcome outcome = SampleOutcome();
  outcome.profile.hardware.emplace();
  ClusterSpec& cluster = outcome.plan.scenario.cluster;
  cluster = {};
  EXPECT_EQ(ClusterInWords(outcome), "1 node of 1");
  cluster.nodes = 4;
  cluster.devices_per_node = 8;
  cluster.network.inter_node.kind = "infiniband";
  cluster.network.inter_node.gbits_per_nic = 400;
  outcome.profile.hardware->intra_node = "nvlink4";
  cluster.straggler = StragglerSpec{3, 1.3};
  EXPECT_EQ(ClusterInWords(outcome),
            "4 nodes of 8 · nvlink4 within · 1 x 400 Gb/s infiniband a node · rank 3 takes 1.3 x as long");
  cluster.network.intra_node.gbytes_per_s = 300;
  EXPECT_EQ(ClusterInWords(outcome),
            "4 nodes of 8 · 300 GB/s within · 1 x 400 Gb/s infiniband a node · rank 3 takes 1.3 x as long");
  outcome.prediction.reset();
  EXPECT_EQ(ClusterInWords(outcome), "");
}

TEST(OperatorRows, ContributionsAreSharesOfTheMeasuredStepAndAddUpToTheError) {
  std::vector<OperatorRow> rows = OperatorRows(SampleOutcome());
  ASSERT_EQ(rows.size(), 4u);
  double sum = 0;
  for (const OperatorRow& row : rows) sum += row.contribution;
  EXPECT_NEAR(rows[0].contribution, 0.05, 1e-12);  // (7.5 ms - 7 ms) / 10 ms
  EXPECT_EQ(rows[0].name, "gemm");
  EXPECT_NEAR(sum, 0.10, 1e-12);
}

TEST(OperatorRows, ListWhatOnlyOneSideHas) {
  Outcome outcome = SampleOutcome();
  outcome.measurement->by_operator["dispatch"] = Milliseconds(2);
  std::vector<OperatorRow> rows = OperatorRows(outcome);
  EXPECT_EQ(rows[0].name, "dispatch");
  // The 10 ms and 2 ms are shares of a median step of 10 ms, to a picosecond.
  EXPECT_NEAR(rows[0].contribution, -2.0 / 12, 1e-9);
}

TEST(OperatorRows, AreOrderedByTimeWhenThereIsNothingToCompare) {
  Outcome outcome = SampleOutcome();
  outcome.measurement.reset();
  std::vector<OperatorRow> rows = OperatorRows(outcome);
  EXPECT_EQ(rows[0].name, "gemm");
  EXPECT_EQ(rows[1].name, "wait all_reduce");
  EXPECT_EQ(rows[0].contribution, 0);
}

TEST(Throughput, CountsTheTokensOfAllRanksAndTheFlopsOfOne) {
  Throughput throughput = ThroughputOf(SamplePlan(), Milliseconds(10));
  EXPECT_DOUBLE_EQ(throughput.tokens_per_s, 819200);  // 8192 / 10 ms
  // 6 * 2^20 FLOPs a token * 819,200 tokens/s / 2 ranks
  EXPECT_DOUBLE_EQ(throughput.flops_per_device.flops_per_second(), 6.0 * 1048576 * 819200 / 2);
}

// 8192 tokens in a step of 11 ms on 2 ranks.
TEST(TrainingRunOf, IsWholeStepsOfTheMedian) {
  Outcome outcome = SampleOutcome();
  EXPECT_FALSE(TrainingRunOf(outcome)) << "not asked for";
  outcome.train_tokens = 8192e6 + 1;
  const TrainingRun run = TrainingRunOf(outcome).value();
  EXPECT_EQ(run.steps, 1e6 + 1);
  EXPECT_DOUBLE_EQ(run.seconds, (1e6 + 1) * 0.011);
  EXPECT_DOUBLE_EQ(run.device_hours, 2 * run.seconds / 3600);
  outcome.train_tokens = 1e18;  // 42,000 years, which a Duration cannot hold
  EXPECT_NEAR(TrainingRunOf(outcome)->seconds, 1e18 / 8192 * 0.011, 1);
  outcome.prediction.reset();
  EXPECT_FALSE(TrainingRunOf(outcome)) << "of a prediction only";
}

// 1e12 FLOPs a token, 100 tokens on 2 devices in 1 s: 50 TFLOP/s of each, 16 % of 312.
TEST(MfuOf, IsModelFlopsOverTheDensePeakOfTheTypeComputedIn) {
  Outcome outcome = SampleOutcome();
  outcome.plan.world_size = 2;
  outcome.plan.model.tokens_per_step = 100;
  outcome.plan.model.flops_per_token = Flops(1e12);
  EXPECT_FALSE(MfuOf(outcome.plan, outcome.profile, Seconds(1))) << "a CPU has no peak";
  outcome.profile.hardware = DeviceSpec{};
  outcome.profile.hardware->peaks["bf16"] = Tflops(312);
  outcome.plan.scenario.precision.compute = Precision::kBf16;
  EXPECT_NEAR(*MfuOf(outcome.plan, outcome.profile, Seconds(1)), 50.0 / 312, 1e-12);
  EXPECT_EQ(DensePeak(outcome.plan, outcome.profile), Tflops(312));
}

TEST(FitsInDevice, HoldsReservedAndOutsideBytesAgainstTheDevice) {
  Prediction prediction;
  prediction.peak_reserved = GiB(70);
  prediction.outside_allocator = GiB(9);
  EXPECT_FALSE(FitsInDevice(prediction)) << "not known";
  prediction.device_memory = GiB(79);
  EXPECT_EQ(FitsInDevice(prediction), true);
  prediction.device_memory = GiB(78);
  EXPECT_EQ(FitsInDevice(prediction), false);
}

}  // namespace
}  // namespace windtunnel
