// A pipeline's schedule in one total order, in which composed steps go through it.
#include "sim/composed/pipeline_walk.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace windtunnel::composed
