#include "base/parallel.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace windtunnel {
namespace {

TEST(ForEachInParallel, DoesEachOnce) {
  for (int threads : {0, 1, 3, 100}) {
    std::vector<std::atomic<int>> done(50);
    ForEachInParallel(threads, done.size(), [&](size_t i) { ++done[i]; });
    for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1) << threads;
  }
  ForEachInParallel(4, 0, [](size_t) { FAIL(); });
}

// If memory runs out in the thread that makes a plan, the caller who asked for the plan reports it.
TEST(ForEachInParallel, ThrowsWhatACallThrows) {
  for (int threads : {1, 4}) {
    const auto work = [](size_t i) {
      if (i == 7) throw std::runtime_error("seven");
    };
    EXPECT_THROW(ForEachInParallel(threads, 20, work), std::runtime_error) << threads;
  }
}

TEST(ForEachInParallelBesideIdle, DoesEachOnceAndThrowsOnTheCallersThread) {
  const auto never = [] { return false; };
  for (int threads : {0, 1, 3, 100}) {
    std::vector<std::atomic<int>> done(50);
    int idle = 0;
    ForEachInParallel(
        threads, done.size(), [&](size_t i) { ++done[i]; }, [&] { ++idle; }, never);
    for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1) << threads;
    EXPECT_GE(idle, 1);
    const auto seventh = [](size_t i) {
      if (i == 7) throw std::runtime_error("seven");
    };
    EXPECT_THROW(ForEachInParallel(
                     threads, 20, seventh, [] {}, never),
                 std::runtime_error)
        << threads;
  }
  ForEachInParallel(
      4, 0, [](size_t) { FAIL(); }, [] { FAIL(); }, never);
}

TEST(ForEachInParallelBesideIdle, BeginsNothingOnceItStops) {
  std::atomic<int> done = 0;
  ForEachInParallel(
      2, 1000, [&](size_t) { ++done; }, [] {}, [&] { return done >= 10; });
  EXPECT_GE(done, 10);
  EXPECT_LE(done, 12);
}

// Neighbours share what the first of them has made if they run on one thread.
TEST(ForEachInParallelBesideIdle, HasNeighboursOnOneThread) {
  std::vector<std::thread::id> threads(1000);
  const auto work = [&](size_t i) {
    threads[i] = std::this_thread::get_id();
    std::this_thread::sleep_for(std::chrono::microseconds(20));  // so that others get their turn
  };
  ForEachInParallel(
      2, threads.size(), work, [] {}, [] { return false; });
  int changes = 0;
  for (size_t i = 1; i < threads.size(); ++i) changes += threads[i] != threads[i - 1];
  EXPECT_LE(changes, 100);
}

// However uneven the calls are, no thread has much left to do at the end.
TEST(ForEachInParallelBesideIdle, TakesOneAtATimeTowardsTheEnd) {
  constexpr size_t kCount = 100, kMostLeft = kCount / 16 + 1;
  std::atomic<size_t> done = 0;
  size_t left = 0;
  const auto work = [&](size_t i) {
    if (i == 0) {  // wait until the other thread has done all that it should
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (done < kCount - kMostLeft && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      left = kCount - done;
    }
    ++done;
  };
  ForEachInParallel(
      2, kCount, work, [] {}, [] { return false; });
  EXPECT_EQ(done, kCount);
  EXPECT_LE(left, kMostLeft);
}

}  // namespace
}  // namespace windtunnel
