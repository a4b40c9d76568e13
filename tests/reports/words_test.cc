#include "reports/words.h"

#include <gtest/gtest.h>

#include "tests/reports/sample_outcome.h"
#include "tests/reports/sample_pipeline.h"

namespace windtunnel {
namespace {

TEST(RankRanges, JoinsNeighbours) {
  EXPECT_EQ(RankRanges({}), "");
  EXPECT_EQ(RankRanges({3}), "3");
  EXPECT_EQ(RankRanges({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(NamedRanks, AreOneOrSeveral) {
  EXPECT_EQ(NamedRanks({3}), "rank 3");
  EXPECT_EQ(NamedRanks({0, 1, 2, 5}), "ranks 0-2,5");
}

TEST(ModelInWords, CountsParameters) {
  Plan plan = SamplePlan();
  EXPECT_EQ(ModelInWords(plan), "mlp 1024-1024 · 1.05M parameters");
  plan.model.frozen_parameters = 1'000'000;
  EXPECT_EQ(ModelInWords(plan), "mlp 1024-1024 · 1.05M parameters, 48.6K trained");
}

TEST(ParallelismInWords, NamesTheAxesThatAreSplit) {
  Scenario scenario = SamplePlan().scenario;
  EXPECT_EQ(ParallelismInWords(scenario), "2 ranks, data 2 (ddp)");
  scenario.parallel.data.size = 1;
  EXPECT_EQ(ParallelismInWords(scenario), "1 rank");
  scenario.parallel.pipeline.size = 4;
  EXPECT_EQ(ParallelismInWords(scenario), "4 ranks, pipeline 4 (1f1b)");
}

TEST(BatchInWords, CountsAStepOfAllRanks) {
  Plan plan = SamplePlan();
  EXPECT_EQ(BatchInWords(plan), "1 sample a rank and step, 8.19K samples over all ranks");
  plan.scenario.batch = {.micro = 4, .accumulate = 2};
  EXPECT_EQ(BatchInWords(plan),
            "4 samples a micro-batch, 2 micro-batches a step, 8.19K samples over all ranks");
  plan.scenario.batch = {.micro = 1, .accumulate = 1};
  plan.scenario.parallel.tensor.size = 2;
  EXPECT_EQ(BatchInWords(plan), "1 sample a replica and step, 8.19K samples over all ranks");
}

TEST(ParallelismInWords, NamesTheScheduleAndItsVirtualStages) {
  Scenario scenario;
  scenario.parallel.pipeline = {.size = 4, .schedule = "interleaved", .virtual_stages = 2, .balance = {}};
  EXPECT_EQ(ParallelismInWords(scenario), "4 ranks, pipeline 4 (interleaved, 2 virtual stages)");
}

TEST(PipelineInWords, SaysHowLayersAreDividedAmongStages) {
  EXPECT_EQ(PipelineInWords(PipelinePlanOf({.ranks = 4})), "4 stages of 2 layers");
  EXPECT_EQ(PipelineInWords(PipelinePlanOf({.schedule = "interleaved", .virtual_stages = 2})),
            "4 stages of 2 layers, 2 a rank");
  Scenario scenario = PipelineScenario({.ranks = 4});
  scenario.parallel.pipeline.balance = {3, 2, 2, 1};
  EXPECT_EQ(PipelineInWords(*CompilePlan(scenario)), "4 stages of 3, 2 × 2, 1 layers");
}

}  // namespace
}  // namespace windtunnel
