// Predictions that go operator by operator share the machine's memory.
#include "sim/operator_room.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario OfBlocks(int64_t micro_batches, bool has_experts = false) {
  Scenario s = TinyLlama(2);
  s.model.layers = 10;
  s.batch.accumulate = micro_batches;
  if (has_experts) s.model.experts = ExpertsSpec{.count = 4, .top_k = 2};
  return s;
}

TEST(OperatorMemory, GrowsWithBlocksAndMicroBatches) {
  EXPECT_EQ(OperatorMemory(OfBlocks(100)), Bytes(65'000 * 1000));
  EXPECT_EQ(OperatorMemory(OfBlocks(200)), OperatorMemory(OfBlocks(100)) * 2);
  EXPECT_GT(OperatorMemory(OfBlocks(100, /*has_experts=*/true)), OperatorMemory(OfBlocks(100)));
}

TEST(OperatorRoom, SmallOnesGoAtOnce) {
  std::optional<OperatorRoom> one(std::in_place, OfBlocks(1));
  std::future<void> other = std::async(std::launch::async, [] { const OperatorRoom room(OfBlocks(1)); });
  EXPECT_EQ(other.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  one.reset();  // or the other would wait forever
}

// A prediction that needs more memory than any machine has runs alone, and another waits for it.
TEST(OperatorRoom, WhoNeedsMoreThanThereIsGoesAlone) {
  std::optional<OperatorRoom> large(std::in_place, OfBlocks(1'000'000'000));
  std::atomic<bool> has_room = false;
  std::thread other([&] {
    const OperatorRoom small(OfBlocks(1));
    has_room = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has_room);
  large.reset();
  other.join();
  EXPECT_TRUE(has_room);
}

}  // namespace
}  // namespace windtunnel
