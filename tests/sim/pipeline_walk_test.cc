// A pipeline's schedule in one total order, in which composed steps go through it.
#include "sim/composed/pipeline_walk.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel::composed {
namespace {

// Every message is released exactly once, however many a rank has; here they are more than 16 bits can count.
TEST(PipelineWalk, ReleasesEachMessageOnce) {
  for (const int64_t micro_batches : {3, 40'000}) {
    Scenario s = TinyGpt();
    s.model.layers = 2;
    s.parallel.pipeline.size = 2;
    s.parallel.pipeline.schedule = "gpipe";
    s.batch.accumulate = micro_batches;
    const auto walk = MakePipelineWalk(s);
    ASSERT_TRUE(walk) << walk.error().message;
    EXPECT_EQ(walk->messages, 2 * micro_batches);
    int64_t released = walk->unreleased[0] + walk->unreleased[1];
    for (const PipelineEvent& event : walk->events) {
      EXPECT_GE(event.released, 0);
      released += event.released;
    }
    EXPECT_EQ(released, 2 * micro_batches);
  }
}

std::string Written(const std::vector<BackwardPass>& passes) {
  std::string text;
  for (const BackwardPass pass : passes)
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", pass.chunk, "BIW"[static_cast<int>(pass.kind)]);
  return text;
}

// Gradients of weights follow those of inputs, in a V at another time on each rank.
TEST(PipelineWalk, KnowsInWhichPassesGradientsBeginAndEnd) {
  Scenario s = TinyGpt();
  s.batch.accumulate = 4;
  s.parallel.pipeline = {.size = 2, .schedule = "zb_h1"};
  const PipelineWalk one_stage = MakePipelineWalk(s).value();
  for (const PassOrder& order : one_stage.passes) {
    EXPECT_EQ(Written(order.first), "0I 0W");
    EXPECT_EQ(Written(order.last), "0I 0W");
  }
  s.parallel.pipeline = {.size = 2, .schedule = "zb_v", .virtual_stages = 2};
  const PipelineWalk v = MakePipelineWalk(s).value();
  EXPECT_EQ(Written(v.passes[0].first), "1I 1W 0I 0W");
  EXPECT_EQ(Written(v.passes[0].last), "1I 1W 0I 0W");
  EXPECT_EQ(Written(v.passes[1].first), "1I 1W 0I 0W");
  EXPECT_EQ(Written(v.passes[1].last), "1I 0I 1W 0W");
  s.parallel.pipeline = {.size = 2, .schedule = "interleaved", .virtual_stages = 2};
  const PipelineWalk loop = MakePipelineWalk(s).value();
  for (const PassOrder& order : loop.passes) EXPECT_EQ(order, WholePasses(2));
}

// A whole backward that is a stage's first for weights but not for inputs would need a template of its own.
TEST(PipelineWalk, RefusesBackwardsThatBeginSomeGradients) {
  Scenario s = TinyGpt();
  s.batch.accumulate = 2;
  const std::string path = ::testing::TempDir() + "/mixed.csv";
  std::ofstream(path) << "0F0,0F1,,0I0,0B1,0W0\n,1F0,1B0,1F1,1B1,\n";
  s.parallel.pipeline = {.size = 2, .schedule = path};
  const auto walk = MakePipelineWalk(s);
  ASSERT_FALSE(walk);
  EXPECT_EQ(walk.error().kind, ErrorKind::kUnsupported) << walk.error().message;
}

}  // namespace
}  // namespace windtunnel::composed
