#include "runtime/step_summary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/run_length.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

StepOfRank Rank(std::optional<double> loss, double milliseconds, int64_t mebibytes) {
  std::vector<double> losses;
  if (loss) losses.push_back(*loss);
  return {7, losses, Milliseconds(milliseconds), MiB(mebibytes), MiB(mebibytes + 2)};
}

TEST(StepSummary, LossesOfTokensFurtherOnStandBesideTheModels) {
  const Plan plan = *CompilePlan(TinyGpt(2));
  std::vector<StepOfRank> ranks = {Rank(2.0, 1, 1), Rank(4.0, 1, 1), Rank(std::nullopt, 1, 1)};
  ranks[0].losses = {2.0, 5.0, 6.0};
  ranks[1].losses = {4.0, 7.0, 10.0};
  const auto read = ParseStepOfRank(Serialize(ranks[0]));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->losses, ranks[0].losses);
  const StepSummary summary = Summarize(plan, ranks, std::nullopt, FlopRate());
  EXPECT_EQ(summary.loss, 3.0);
  EXPECT_EQ(summary.mtp_losses, (std::vector<double>{6.0, 8.0}));
  EXPECT_NE(StepLine(summary).find("loss:  3.0000  mtp_1:  6.0000  mtp_2:  8.0000"), std::string::npos);
}

TEST(StepSummary, AStepTakesAsLongAsItsSlowestRankAndAsMuchAsItsLargest) {
  const Plan plan = *CompilePlan(TinyGpt(2));
  const StepSummary summary =
      Summarize(plan, {Rank(2.0, 10, 30), Rank(4.0, 20, 10)}, std::nullopt, FlopRate());
  EXPECT_EQ(summary.step, 7);
  EXPECT_EQ(summary.loss, 3.0);
  EXPECT_EQ(summary.max_loss, 4.0);
  EXPECT_EQ(summary.time, Milliseconds(20));
  EXPECT_EQ(summary.allocated, MiB(30));
  EXPECT_EQ(summary.reserved, MiB(32));
  // Per device, of two, in 20 ms.
  EXPECT_DOUBLE_EQ(summary.tokens_per_s, plan.model.tokens_per_step / 2 / 0.020);
  EXPECT_DOUBLE_EQ(summary.tflops, summary.tokens_per_s * plan.model.flops_per_token.count() / 1e12);
  EXPECT_FALSE(summary.mfu);
}

TEST(StepSummary, InAPipelineOnlyTheLastStageHasALoss) {
  const Plan plan = *CompilePlan(TinyGpt(2));
  const StepSummary summary = Summarize(plan, {Rank({}, 10, 1), Rank(-4.0, 10, 1)}, {}, FlopRate());
  EXPECT_EQ(summary.loss, -4.0);
  EXPECT_EQ(summary.max_loss, -4.0);
}

TEST(StepSummary, MfuIsTheShareOfTheDevicesPeak) {
  const Plan plan = *CompilePlan(TinyGpt(1));
  const double flops = plan.model.flops_per_token.count() * plan.model.tokens_per_step / 0.010;
  const StepSummary summary =
      Summarize(plan, {Rank(2.0, 10, 1)}, {}, FlopRate::FromFlopsPerSecond(4 * flops));
  ASSERT_TRUE(summary.mfu);
  EXPECT_DOUBLE_EQ(*summary.mfu, 0.25);
}

TEST(StepSummary, TheLineReadsAsTorchtitans) {
  StepSummary summary{.step = 3,
                      .loss = 8.35861,
                      .max_loss = 9,
                      .gradient_norm = 1.25,
                      .time = Milliseconds(152),
                      .allocated = MiB(134),
                      .reserved = MiB(136),
                      .tokens_per_s = 1234567.4,
                      .tflops = 312.4,
                      .mfu = 0.4012};
  EXPECT_EQ(StepLine(summary),
            "step:  3  loss:  8.3586  grad_norm:  1.2500  memory:  136 MiB  tps: 1,234,567  tflops: 312.40  "
            "mfu: 40.12%");
  summary.gradient_norm.reset();
  summary.mfu.reset();
  summary.step = 1000;
  summary.tokens_per_s = 999;
  summary.tflops = 0.1043;
  summary.throughput_name = "sps";
  EXPECT_EQ(StepLine(summary),
            "step: 1000  loss:  8.3586  memory:  136 MiB  sps: 999  tflops: 0.104  mfu: n/a");
}

TEST(StepSummary, ALossThatIsNoNumberIsNanWhateverItsSign) {
  for (double nan : {std::nan(""), -std::nan("")}) {
    const std::string line = StepLine({.step = 1, .loss = nan, .gradient_norm = nan});
    EXPECT_EQ(line.find("step:  1  loss:     nan  grad_norm:     nan  "), 0u) << line;
  }
}

TEST(StepSummary, SaysTheLossScaleAndHowManyStepsWereSkipped) {
  StepSummary summary{.step = 12, .loss = 4, .loss_scale = LossScaleState{32768, 11, 1}, .tokens_per_s = 10};
  EXPECT_EQ(StepLine(summary),
            "step: 12  loss:  4.0000  loss_scale: 32768  skipped: 1  memory:      0 B  tps: 10  tflops: 0  "
            "mfu: n/a");
  const EventFile::Scalars scalars = StepScalars(summary);
  for (const auto& [name, value] : {std::pair("loss_scale", 32768.0), std::pair("skipped_steps", 1.0)}) {
    EXPECT_NE(std::find(scalars.begin(), scalars.end(), std::pair<std::string, double>(name, value)),
              scalars.end())
        << name;
  }
}

// With run.warmup: 0, ddp's two first steps are a warm-up: steps 1 to 6 have 6/6 to 1/6 of the rate.
TEST(StepSummary, TheRateFallsUntilTheLastStepOfTheWholeRun) {
  Scenario s = TinyGpt(2);
  s.optimizer.lr = 6e-4;
  s.lr_scheduler.decay = LearningRateDecay::kLinear;
  s.run.warmup = 0;
  s.run.steps = 4;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(LengthOf(plan).warmup, 2);
  EXPECT_EQ(LengthOf(plan).steps, 6);
  for (int64_t step = 1; step <= 6; ++step) {
    const StepOfRank rank{.step = step, .losses = {1}, .time = Milliseconds(1)};
    EXPECT_NEAR(Summarize(plan, {rank}, std::nullopt, FlopRate()).learning_rate,
                static_cast<double>(7 - step) * 1e-4, 1e-12);
  }
}

TEST(StepSummary, SaysTheLearningRateWhereItChanges) {
  Scenario s = TinyGpt(1);
  s.optimizer.lr = 1e-3;
  s.lr_scheduler.warmup_steps = 10;
  const StepOfRank rank{.step = 7, .losses = {1}, .time = Milliseconds(1)};
  const StepSummary summary = Summarize(*CompilePlan(s), {rank}, std::nullopt, FlopRate());
  EXPECT_NE(StepLine(summary).find("  lr: 7.000e-04  memory: "), std::string::npos) << StepLine(summary);
  s.lr_scheduler = {};
  const StepSummary constant = Summarize(*CompilePlan(s), {rank}, std::nullopt, FlopRate());
  EXPECT_EQ(StepLine(constant).find("lr:"), std::string::npos);
  for (const auto& [of, rate] : {std::pair(summary, 7e-4), std::pair(constant, 1e-3)}) {
    for (const auto& [name, value] : StepScalars(of)) {
      if (name == "lr") {
        EXPECT_DOUBLE_EQ(value, rate);
      }
    }
  }
}

TEST(StepSummary, WhatNobodyComputedIsNoScalar) {
  StepSummary summary;
  EXPECT_EQ(StepScalars(summary).size(), 8u);
  summary.gradient_norm = 1;
  summary.mfu = 0.4;
  const EventFile::Scalars scalars = StepScalars(summary);
  EXPECT_EQ(scalars.size(), 10u);
  EXPECT_NE(std::find(scalars.begin(), scalars.end(), std::pair<std::string, double>("mfu(%)", 40)),
            scalars.end());
}

TEST(StepSummary, ARanksStepSurvivesTheStore) {
  for (const auto& loss : {std::optional<double>(1.5), std::optional<double>()}) {
    const auto read = ParseStepOfRank(Serialize(Rank(loss, 3, 5)));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->step, 7);
    EXPECT_EQ(read->losses, Rank(loss, 3, 5).losses);
    EXPECT_EQ(read->time, Milliseconds(3));
    EXPECT_EQ(read->allocated, MiB(5));
    EXPECT_EQ(read->reserved, MiB(7));
  }
  // CBOR of [1, null, 1e194, 1, 1]: the time does not fit into picoseconds.
  EXPECT_FALSE(ParseStepOfRank("\x85\x01\xf6\xfb\x68\x40\x01\x01\x01\x01\x01\x01\x01\x01"));
  EXPECT_FALSE(ParseStepOfRank("nonsense"));
  EXPECT_FALSE(ParseStepOfRank(""));
}

}  // namespace
}  // namespace windtunnel
