#include "reports/pipeline_actions.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/plan/scenarios_for_tests.h"
#include "tests/reports/sample_pipeline.h"

namespace windtunnel {
namespace {

// The operators of a program, grouped by action, are the schedule again: both are the same list of computations.
TEST(ActionSpans, AreTheScheduleInItsOrder) {
  for (const SamplePipeline& sample : EverySchedule()) {
    const Outcome outcome = PipelineOutcome(sample);
    const Schedule schedule = ComputationsOf(outcome.plan);
    for (const Timeline& timeline : outcome.prediction->timelines) {
      std::vector<Action> ran;
      Duration before;
      for (const ActionSpan& span : ActionSpans(outcome.plan, timeline)) {
        ran.push_back(span.action);
        EXPECT_GE(span.start, before) << sample.schedule << " " << FormatAction(span.action);
        EXPECT_GT(span.end, span.start) << sample.schedule << " " << FormatAction(span.action);
        before = span.end;
      }
      EXPECT_EQ(ran, schedule.ranks[outcome.plan.mesh.PlaceOf(timeline.rank).pipeline]) << sample.schedule;
    }
  }
}

// Each computation has one span, of full height where none take turns.
TEST(WholeActionSpans, AreActionSpansWhereNoneTakeTurns) {
  const Outcome outcome = PipelineOutcome(EverySchedule().front());
  for (const Timeline& timeline : outcome.prediction->timelines) {
    const std::vector<ActionSpan> spans = ActionSpans(outcome.plan, timeline);
    const std::vector<WholeActionSpan> whole = WholeActionSpans(outcome.plan, timeline);
    ASSERT_EQ(whole.size(), spans.size());
    for (size_t i = 0; i < spans.size(); ++i) {
      EXPECT_EQ(whole[i].action, spans[i].action);
      EXPECT_EQ(whole[i].start, spans[i].start);
      EXPECT_EQ(whole[i].end, spans[i].end);
      EXPECT_EQ(whole[i].half, WholeActionSpan::Half::kNone);
    }
  }
}

// A forward and a backward of two micro-batches lie beside each other, each in one half; either may begin
// first.
TEST(WholeActionSpans, HaveHalvesWhereTwoTakeTurns) {
  using Half = WholeActionSpan::Half;
  const Outcome outcome =
      PipelineOutcome({.schedule = "interleaved", .virtual_stages = 2, .takes_turns = true});
  const Schedule schedule = ComputationsOf(outcome.plan);
  ASSERT_FALSE(schedule.paired.empty());
  for (const Timeline& timeline : outcome.prediction->timelines) {
    const std::vector<WholeActionSpan> whole = WholeActionSpans(outcome.plan, timeline);
    EXPECT_GT(ActionSpans(outcome.plan, timeline).size(), whole.size());
    std::map<Action, WholeActionSpan> by_action;
    for (const WholeActionSpan& span : whole) by_action.insert({span.action, span});
    const auto& actions = schedule.ranks[outcome.plan.mesh.PlaceOf(timeline.rank).pipeline];
    ASSERT_EQ(by_action.size(), actions.size());
    for (size_t i = 0; i < actions.size(); ++i) {
      const WholeActionSpan& span = by_action.at(actions[i]);
      const bool begins = schedule.paired.contains(actions[i]);
      const bool ends = i > 0 && schedule.paired.contains(actions[i - 1]);
      EXPECT_EQ(span.half, begins ? Half::kUpper : ends ? Half::kLower : Half::kNone);
      if (!begins) continue;
      const WholeActionSpan& other = by_action.at(actions[i + 1]);
      EXPECT_LT(span.start, other.end);
      EXPECT_LT(other.start, span.end);
    }
  }
}

TEST(ActionSpans, OfOnePieceAreNone) {
  Plan plan = *CompilePlan(TinyGpt());
  EXPECT_TRUE(ActionSpans(plan, Timeline{}).empty());
}

TEST(TimelinesByPipelineRank, AreOfTheFirstDataParallelRank) {
  const Plan plan = PipelinePlanOf({.data = 2});
  std::vector<Timeline> timelines(3);  // pipeline rank 0 has ranks 0 and 1
  timelines[0].rank = 1;
  timelines[1].rank = 0;
  timelines[2].rank = 3;
  const std::vector<const Timeline*> found = TimelinesByPipelineRank(plan, timelines);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]->rank, 0);
  EXPECT_EQ(found[1]->rank, 3) << "the only one";
  EXPECT_EQ(TimelinesByPipelineRank(plan, {})[0], nullptr);
}

TEST(StagesOfRank, AreThoseThatItHolds) {
  EXPECT_EQ(StagesOfRank(PipelinePlanOf({.schedule = "interleaved", .virtual_stages = 2}), 1),
            (std::vector<int>{1, 3}));
  EXPECT_EQ(StagesOfRank(PipelinePlanOf({.schedule = "zb_v", .virtual_stages = 2}), 1),
            (std::vector<int>{1, 2}));
}

TEST(ShortRoleName, CutsTheLastStages) {
  Role role;
  role.name = "stages 0, 8, 16";
  EXPECT_EQ(ShortRoleName(role, 15), "stages 0, 8, 16");
  EXPECT_EQ(ShortRoleName(role, 14), "stages 0, 8, …");
  EXPECT_EQ(ShortRoleName(role, 12), "stages 0, …");
  role.name = "stage 0";
  EXPECT_EQ(ShortRoleName(role, 3), "stage 0");
}

}  // namespace
}  // namespace windtunnel
