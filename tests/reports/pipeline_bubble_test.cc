#include "reports/pipeline_bubble.h"

#include <gtest/gtest.h>

#include "plan/schedule_bubble.h"
#include "reports/pipeline_actions.h"
#include "tests/reports/sample_pipeline.h"

namespace windtunnel {
namespace {

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

// All turns of a computation count as one action: every stage has the forwards and backwards of four
// micro-batches.
TEST(PipelineUse, AddsUpTheTurnsOfEachComputation) {
  const Outcome outcome =
      PipelineOutcome({.schedule = "interleaved", .virtual_stages = 2, .takes_turns = true});
  const PipelineUse use = PipelineUseOf(outcome.plan, outcome.prediction->timelines);
  EXPECT_EQ(use.actions.size(), 2u * 4 * 4);
  for (size_t stage = 0; stage < use.stages.size(); ++stage) {
    EXPECT_FALSE(use.stages[stage].has_split);
    Duration sum;
    for (const auto& [action, time] : use.actions)
      if (action.stage == static_cast<int>(stage) && action.kind == ActionKind::kForward) sum += time;
    EXPECT_EQ(use.stages[stage].times.forward, sum / 4);
  }
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
