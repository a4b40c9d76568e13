#include "reports/pipeline_bubble.h"

#include <gtest/gtest.h>

#include "plan/schedule_bubble.h"
#include "reports/pipeline_actions.h"
#include "tests/reports/sample_pipeline.h"

namespace windtunnel {
namespace {

// One micro-batch, F = 1, B = 2, messages of 0.5:   0F0 0-1, 1F0 1.5-2.5, 1B0 2.5-4.5, 0B0 5-7.
TEST(RunPipeline, LetsMessagesTakeTheirTime) {
  const Schedule schedule{"",
                          1,
                          {0, 1},
                          {{{ActionKind::kForward, 0, 0}, {ActionKind::kBackward, 0, 0}},
                           {{ActionKind::kForward, 1, 0}, {ActionKind::kBackward, 1, 0}}}};
  const auto time = [](const Action& action) { return Seconds(action.kind == ActionKind::kForward ? 1 : 2); };
  const RankTimes times = RunPipeline(schedule, time, Seconds(0.5));
  EXPECT_EQ(times.done, (std::vector<Duration>{Seconds(7), Seconds(4.5)}));
  EXPECT_EQ(times.work, (std::vector<Duration>{Seconds(3), Seconds(3)}));
}

// Stages that share a rank hand over without a message.
TEST(RunPipeline, HandsOverWithinARankForNothing) {
  const Schedule schedule{"", 1, {0, 0}, {{{ActionKind::kForward, 0, 0}, {ActionKind::kForward, 1, 0}}}};
  const RankTimes times = RunPipeline(
      schedule, [](const Action&) { return Seconds(1); }, Seconds(10));
  EXPECT_EQ(times.done[0], Seconds(2));
}

TEST(RunPipeline, AgreesWithRunScheduleWhereMessagesAreFree) {
  const StageTimes times{Seconds(2), Seconds(3), Seconds(1)};
  for (const SamplePipeline& sample : EverySchedule()) {
    const Schedule schedule =
        *MakeSchedule(sample.schedule, 2, static_cast<int>(sample.virtual_stages), sample.micro_batches);
    const RankTimes ran = RunPipeline(
        schedule, [&](const Action& action) { return times.Of(action.kind); }, Duration());
    EXPECT_EQ(*std::max_element(ran.done.begin(), ran.done.end()), RunSchedule(schedule, times).makespan)
        << sample.schedule;
  }
}

TEST(PipelineUse, CountsMessagesOfOneReplica) {
  const Outcome outcome = PipelineOutcome({.ranks = 4, .micro_batches = 6, .data = 2});
  const PipelineUse use = PipelineUseOf(outcome.plan, outcome.prediction->timelines);
  EXPECT_EQ(use.messages.count, 2 * 3 * 6);                // to and fro, over three borders
  EXPECT_EQ(use.messages.bytes, Bytes(2 * 16 * 256 * 4));  // sequences, tokens, hidden, fp32
  EXPECT_GT(use.messages.time, Duration());
  ASSERT_EQ(use.stages.size(), 4u);
  for (const StageUse& stage : use.stages) {
    EXPECT_TRUE(stage.has_backward);
    EXPECT_GT(stage.times.backward(), stage.times.forward);
  }
  for (Duration tail : use.tail) EXPECT_GT(tail, Duration());
}

TEST(BubbleParts, BeginWithTheClosedFormAndExplainThePrediction) {
  for (const SamplePipeline& sample : EverySchedule()) {
    const Outcome outcome = PipelineOutcome(sample);
    const PipelineUse use = PipelineUseOf(outcome.plan, outcome.prediction->timelines);
    const BubbleParts parts = BubblePartsOf(outcome.plan, *outcome.prediction, use);
    if (parts.closed_form) {
      EXPECT_NEAR(parts.equal_stages / *parts.closed_form, 1, 1e-6) << sample.schedule;
    }
    EXPECT_GE(parts.with_messages, parts.own_times) << sample.schedule;
    EXPECT_EQ(parts.predicted, outcome.prediction->breakdown.bubble);
    EXPECT_NEAR(parts.with_end / parts.predicted, 1, 0.15) << sample.schedule;
  }
}

TEST(RequestOf, IsNothingForASchedulesFile) {
  Plan plan = PipelinePlanOf({.schedule = "interleaved", .virtual_stages = 2});
  ASSERT_TRUE(RequestOf(plan));
  EXPECT_EQ(RequestOf(plan)->virtual_stages, 2);
  EXPECT_EQ(RequestOf(plan)->micro_batches, 4);
  plan.pipeline->schedule.name = "mine.csv";
  EXPECT_FALSE(RequestOf(plan));
}

}  // namespace
}  // namespace windtunnel
