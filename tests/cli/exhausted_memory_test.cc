#include "cli/exhausted_memory.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <thread>

#include "runtime/launcher.h"

namespace windtunnel {
namespace {

template <typename Thrown>
void DieInAThread(bool is_launched, Thrown thrown) {
  EndWhereMemoryIsExhausted(is_launched);
  std::thread([thrown] { throw thrown; }).join();
}

TEST(ExhaustedMemory, EndsACommandWithALineAndStatus1) {
  EXPECT_EXIT(DieInAThread(false, std::bad_alloc()), testing::ExitedWithCode(1),
              "^windtunnel: this machine's memory is exhausted\n$");
}

TEST(ExhaustedMemory, LeavesTheWordsToTheLauncherOfARank) {
  EXPECT_EXIT(DieInAThread(true, std::bad_alloc()), testing::ExitedWithCode(kMemoryExhausted), "^$");
}

TEST(ExhaustedMemory, LeavesOtherExceptionsAsTheyAre) {
  EXPECT_EXIT(DieInAThread(false, std::runtime_error("a mistake")), testing::KilledBySignal(SIGABRT),
              "a mistake");
}

}  // namespace
}  // namespace windtunnel
