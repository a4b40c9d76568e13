// A pipeline's schedule in one total order, in which composed steps go through it.
#include "sim/composed/pipeline_walk.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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
    int64_t released = 0;
    for (const MemoryTrace& trace : walk->memory) {
      released += trace.unreleased;
      for (const MemoryTrace::Run& run : trace.runs) {
        for (int32_t i = run.begin; i < run.begin + run.length; ++i) {
          EXPECT_GE(trace.events[i].released, 0);
          released += run.count * trace.events[i].released;
        }
      }
    }
    EXPECT_EQ(released, 2 * micro_batches);
  }
}

// An action writes when its message is made, the message when it has arrived, and another action reads that.
// With more micro-batches there are no more messages on their way.
TEST(PipelineWalk, KeepsEachMessageInASlotUntilItIsNeeded) {
  enum class Slot { kFree, kMade, kArrived };
  Scenario s = TinyGpt();
  s.model.layers = 8;
  for (const auto& [schedule, virtual_stages, boundaries] : {std::tuple("1f1b", 1, 3),
                                                             {"interleaved", 2, 7},
                                                             {"gpipe", 1, 3},
                                                             {"zb_h1", 1, 3},
                                                             {"zb_v", 2, 6},
                                                             {"dualpipe_v", 2, 6}}) {
    std::vector<int32_t> slots;
    for (const int64_t micro_batches : {8, 16}) {
      s.batch.accumulate = micro_batches;
      s.parallel.pipeline = {.size = 4, .schedule = schedule, .virtual_stages = virtual_stages};
      const PipelineWalk walk = MakePipelineWalk(s).value();
      std::vector<Slot> state(static_cast<size_t>(walk.message_slots), Slot::kFree);
      const auto advance = [&](int32_t slot, Slot from, Slot to) {
        EXPECT_EQ(state.at(static_cast<size_t>(slot)), from) << schedule;
        state.at(static_cast<size_t>(slot)) = to;
      };
      int64_t messages = 0;
      for (const PipelineEvent& event : walk.events) {
        if (event.kind == PipelineEvent::Kind::kMessage) {
          ++messages;
          advance(event.out, Slot::kMade, Slot::kArrived);
          continue;
        }
        if (event.out >= 0) advance(event.out, Slot::kFree, Slot::kMade);
        if (event.in >= 0) advance(event.in, Slot::kArrived, Slot::kFree);
      }
      EXPECT_EQ(messages, 2 * boundaries * micro_batches) << schedule;
      EXPECT_EQ(std::count(state.begin(), state.end(), Slot::kFree), walk.message_slots) << schedule;
      slots.push_back(walk.message_slots);
    }
    EXPECT_EQ(slots[0], slots[1]) << schedule;
  }
}

std::vector<MemoryEvent> Written(const MemoryTrace& trace) {
  std::vector<MemoryEvent> events;
  for (const MemoryTrace::Run& run : trace.runs)
    for (int32_t time = 0; time < run.count; ++time)
      events.insert(events.end(), trace.events.begin() + run.begin,
                    trace.events.begin() + run.begin + run.length);
  return events;
}

std::vector<MemoryEvent> EventsOf(const std::vector<int>& chunks) {
  std::vector<MemoryEvent> events;
  for (const int chunk : chunks) events.emplace_back().chunk = static_cast<int16_t>(chunk);
  return events;
}

TEST(MemoryTrace, WritesWhatRepeatsOnce) {
  const MemoryTrace trace = Condense(EventsOf({7, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 5}), /*period=*/3);
  EXPECT_EQ(trace.events, EventsOf({7, 1, 2, 3, 1, 2, 5}));
  const std::vector<MemoryTrace::Run> runs = {{0, 1, 1}, {1, 3, 3}, {4, 3, 1}};
  EXPECT_EQ(trace.runs, runs);
}

// Few kinds of events, so that much repeats, and at any place.
RC_GTEST_PROP(MemoryTrace, HasTheSameEventsInTheSameOrder, ()) {
  const auto events = EventsOf(*rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 2)));
  const auto period = *rc::gen::inRange(0, 5);
  const MemoryTrace trace = Condense(events, period);
  RC_ASSERT(Written(trace) == events);
  RC_ASSERT(trace.events.size() <= events.size());
}

// In the middle of 1F1B a rank alternates between a forward and a backward; interleaved stages go round
// together.
TEST(MemoryTrace, OfAScheduleDoesNotGrowWithItsMicroBatches) {
  Scenario s = TinyGpt();
  s.model.layers = 8;
  for (const auto& [schedule, virtual_stages] :
       {std::pair("1f1b", 1), {"interleaved", 2}, {"gpipe", 1}, {"zb_h1", 1}}) {
    s.parallel.pipeline = {.size = 4, .schedule = schedule, .virtual_stages = virtual_stages};
    std::vector<size_t> sizes;
    for (const int64_t micro_batches : {64, 128}) {
      s.batch.accumulate = micro_batches;
      const PipelineWalk walk = MakePipelineWalk(s).value();
      size_t size = 0;
      for (const MemoryTrace& trace : walk.memory) size += trace.events.size();
      sizes.push_back(size);
    }
    EXPECT_EQ(sizes[0], sizes[1]) << schedule;
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
