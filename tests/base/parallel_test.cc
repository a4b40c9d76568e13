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

// A plan's memory runs out in the thread that makes it, and whoever asked for the plan says so.
TEST(ForEachInParallel, ThrowsWhatACallThrows) {
  for (int threads : {1, 4}) {
    const auto work = [](size_t i) {
      if (i == 7) throw std::runtime_error("seven");
    };
    EXPECT_THROW(ForEachInParallel(threads, 20, work), std::runtime_error) << threads;
  }
}

}  // namespace
}  // namespace windtunnel
