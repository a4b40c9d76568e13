#include "sim/event_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace windtunnel {
namespace {

using Queue = EventQueue<int>;

std::vector<int> PopAll(Queue& queue) {
  std::vector<int> payloads;
  for (Queue::Event event; queue.Pop(event);) payloads.push_back(event.payload);
  return payloads;
}

TEST(EventQueue, FiresInOrderOfTime) {
  Queue queue;
  queue.Schedule(Nanoseconds(30), 3);
  queue.Schedule(Nanoseconds(10), 1);
  queue.Schedule(Nanoseconds(20), 2);
  EXPECT_EQ(PopAll(queue), (std::vector{1, 2, 3}));
  EXPECT_EQ(queue.now(), Nanoseconds(30));
  EXPECT_EQ(queue.fired(), 3);
}

TEST(EventQueue, FiresOneInstantInTheOrderOfScheduling) {
  Queue queue;
  for (int i = 0; i < 9; ++i) queue.Schedule(Nanoseconds(5), i);
  EXPECT_EQ(PopAll(queue), (std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(EventQueue, CancelledEventsNeverFireAndDoNotMoveTheClock) {
  Queue queue;
  queue.Schedule(Nanoseconds(1), 1);
  EventId late = queue.Schedule(Nanoseconds(9), 9);
  queue.Cancel(late);
  queue.Cancel(late);
  queue.Cancel(EventId{});
  EXPECT_EQ(PopAll(queue), (std::vector{1}));
  EXPECT_EQ(queue.now(), Nanoseconds(1));
  EXPECT_EQ(queue.fired(), 1);
}

TEST(EventQueue, AnIdOfAFiredEventDoesNotCancelTheNextUserOfItsSlot) {
  Queue queue;
  EventId first = queue.Schedule(Nanoseconds(1), 1);
  Queue::Event event;
  ASSERT_TRUE(queue.Pop(event));
  queue.Schedule(Nanoseconds(2), 2);  // takes the same slot
  queue.Cancel(first);
  EXPECT_EQ(PopAll(queue), (std::vector{2}));
}

TEST(EventQueue, KnowsWhetherMoreHappensAtThisInstant) {
  Queue queue;
  queue.Schedule(Nanoseconds(1), 1);
  const EventId second = queue.Schedule(Nanoseconds(1), 2);
  queue.Schedule(Nanoseconds(2), 3);
  Queue::Event event;
  ASSERT_TRUE(queue.Pop(event));
  EXPECT_TRUE(queue.HasMoreAtThisInstant());
  queue.Cancel(second);
  EXPECT_FALSE(queue.HasMoreAtThisInstant());
  EXPECT_EQ(PopAll(queue), (std::vector{3}));
  EXPECT_FALSE(queue.HasMoreAtThisInstant());
}

TEST(EventQueue, ResetForgetsEventsAndTime) {
  Queue queue;
  queue.Schedule(Nanoseconds(5), 1);
  PopAll(queue);
  queue.Schedule(Nanoseconds(6), 2);
  queue.Reset();
  EXPECT_EQ(queue.now(), Duration());
  EXPECT_TRUE(PopAll(queue).empty());
}

RC_GTEST_PROP(EventQueue, AgreesWithAStableSort, ()) {
  const auto times = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 20));
  const auto cancelled = *rc::gen::container<std::vector<bool>>(times.size(), rc::gen::arbitrary<bool>());
  Queue queue;
  std::vector<EventId> ids;
  std::vector<int> expected;
  for (size_t i = 0; i < times.size(); ++i)
    ids.push_back(queue.Schedule(Nanoseconds(times[i]), static_cast<int>(i)));
  for (size_t i = 0; i < times.size(); ++i) {
    if (cancelled[i]) queue.Cancel(ids[i]);
    else expected.push_back(static_cast<int>(i));
  }
  std::stable_sort(expected.begin(), expected.end(), [&](int a, int b) { return times[a] < times[b]; });
  RC_ASSERT(PopAll(queue) == expected);
}

}  // namespace
}  // namespace windtunnel
