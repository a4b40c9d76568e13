#include "reports/explain_pipeline.h"

#include <gtest/gtest.h>

#include "base/format.h"
#include "reports/critical_path.h"
#include "reports/explain.h"
#include "reports/pipeline_actions.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/reports/sample_pipeline.h"

namespace windtunnel {
namespace {

testing::AssertionResult Has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no '" << part << "' in\n" << text;
}

std::string Explained(const SamplePipeline& sample) {
  const Outcome outcome = PipelineOutcome(sample);
  return ExplainPipeline(outcome.plan, *outcome.prediction, Ink(false));
}

TEST(ExplainPipeline, IsEmptyWithoutOne) {
  EXPECT_EQ(ExplainPipeline(*CompilePlan(TinyGpt()), Prediction{}, Ink(false)), "");
}

TEST(ExplainPipeline, SaysWhatStagesTakeAndRanksHold) {
  const std::string text = Explained({.ranks = 4});
  EXPECT_TRUE(Has(text, "pipeline  1f1b, 4 stages of 2 layers, 4 micro-batches\n"));
  EXPECT_TRUE(Has(text, "  0         0-1                2"));
  EXPECT_TRUE(Has(text, "above the mean of the ranks"));
  EXPECT_TRUE(Has(text, "       4          4")) << "activations of the first rank, held and promised";
  EXPECT_TRUE(Has(text, "       1          1")) << "of the last rank";
  EXPECT_TRUE(Has(text, "closed form: (p-1) (F+B) with p = 4, v = 1, m = 4: "));
  EXPECT_TRUE(Has(text, "messages: 24 a step of at most 32.0 KiB"));
}

TEST(ExplainPipeline, TellsTheHalvesOfABackwardApart) {
  const std::string text = Explained({.schedule = "zb_h1"});
  EXPECT_TRUE(Has(text, "input gradient  weight gradient"));
  EXPECT_TRUE(Has(text, "(p-1) max(F+I-W, F, I)"));
  EXPECT_FALSE(Has(Explained({}), "weight gradient"));
}

TEST(ExplainPipeline, SaysWhereNoClosedFormHolds) {
  EXPECT_TRUE(Has(Explained({.schedule = "dualpipe_v", .virtual_stages = 2}),
                  "(p-1) F where F = I = W with p = 2, v = 2, m = 4: not the case here"));
}

TEST(Explain, TellsOfEqualRolesOnce) {
  const Outcome outcome = PipelineOutcome({.schedule = "gpipe", .ranks = 4});
  const std::string text = *ExplainMemory(outcome.plan, Bytes::Max(), MemoryDetail::kAll, Ink(false));
  EXPECT_TRUE(Has(text, "as much: stage 2 (rank 2)\n"));
  EXPECT_FALSE(Has(text, "peak memory of the steady step, stage 2"));
  EXPECT_TRUE(Has(text, "peak memory of the steady step, stage 3"));
}

// If stages differ, one is explained in full, and the others by their sums in a table.
TEST(Explain, TellsOfTheLargestOfManyRolesInFull) {
  const Outcome outcome = PipelineOutcome({.ranks = 4});
  const std::string text = *ExplainMemory(outcome.plan, Bytes::Max(), MemoryDetail::kLargest, Ink(false));
  const std::string all = *ExplainMemory(outcome.plan, Bytes::Max(), MemoryDetail::kAll, Ink(false));
  const std::string title = "peak memory of the steady step, stage";
  EXPECT_EQ(text.find(title), text.rfind(title)) << text;
  EXPECT_NE(all.find(title), all.rfind(title));
  EXPECT_TRUE(Has(text, "peak memory of all ranks   in full: --memory\n"));
  for (const PredictedMemory& memory : outcome.prediction->memory)
    EXPECT_TRUE(Has(text, FormatBytes(memory.steady.allocated))) << text;
}

// 1F1B's longest chain goes down the stages with the first micro-batch and up again with the last.
TEST(CriticalPath, FollowsMessagesToTheStageThatMadeThem) {
  const Outcome outcome = PipelineOutcome({.ranks = 4});
  const std::vector<PathSegment> path = CriticalPath(outcome.plan, outcome.prediction->timelines);
  std::vector<std::string> actions;
  for (const PathSegment& segment : path) {
    if (segment.op < 0) continue;
    const Op& op = outcome.plan.RoleOf(segment.rank).steady.ops[segment.op];
    EXPECT_FALSE(std::holds_alternative<Receive>(op.kind)) << "a receive waits for its send";
    Action action;
    if (!ActionLookup(outcome.plan, segment.rank).Find(op, action)) continue;
    if (actions.empty() || actions.back() != FormatAction(action)) actions.push_back(FormatAction(action));
  }
  ASSERT_GE(actions.size(), 8u);
  EXPECT_EQ(std::vector<std::string>(actions.begin(), actions.begin() + 4),
            (std::vector<std::string>{"0F0", "1F0", "2F0", "3F0"}));
  EXPECT_EQ(std::vector<std::string>(actions.end() - 4, actions.end()),
            (std::vector<std::string>{"3B3", "2B3", "1B3", "0B3"}));
}

// Later stages gather their parameters when the first message has come, for which their hosts wait. The path
// to them leads through the stages before.
TEST(CriticalPath, FollowsTheHostToWhatItWaitedFor) {
  const Outcome outcome = PipelineOutcome({.ranks = 4, .data = 2, .hidden = 4096, .gathers_late = true});
  std::vector<int> stages;  // in the order of the path
  for (const PathSegment& segment : CriticalPath(outcome.plan, outcome.prediction->timelines)) {
    const int stage = static_cast<int>(outcome.plan.mesh.PlaceOf(segment.rank).pipeline);
    if (stages.empty() || stages.back() != stage) stages.push_back(stage);
  }
  ASSERT_GE(stages.size(), 4u);
  EXPECT_EQ(std::vector<int>(stages.begin(), stages.begin() + 4), (std::vector<int>{0, 1, 2, 3}));
  const std::string text = ExplainPipeline(outcome.plan, *outcome.prediction, Ink(false));
  EXPECT_TRUE(Has(text, "passes beside, or awaiting, collectives"));
  EXPECT_TRUE(Has(Explained({}), "micro-batches that take different times"));
}

TEST(ExplainTime, NamesActionsOnTheCriticalPathAndBytesOfMessages) {
  const Outcome outcome = PipelineOutcome({});
  const std::string text = ExplainTime(outcome.plan, *outcome.prediction, Ink(false));
  EXPECT_TRUE(Has(text, "rank 0: 0F0\n"));
  EXPECT_TRUE(Has(text, "send activations             32.0 KiB"));
}

// Collectives of tensor-parallel ranks within a forward are part of the forward.
TEST(ExplainTime, CountsTensorCommunicationToItsAction) {
  const Outcome outcome = PipelineOutcome({.tensor = 2});
  const std::string text = ExplainTime(outcome.plan, *outcome.prediction, Ink(false));
  const std::string path = text.substr(text.find("critical path"));
  EXPECT_TRUE(Has(path, "rank 0: 0F0\n"));
  EXPECT_FALSE(Has(path.substr(0, path.find("longest path")), "rank 0 tensor"));
}

}  // namespace
}  // namespace windtunnel
