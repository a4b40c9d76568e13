#include "runtime/core_use.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <thread>

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

// Computes until this process has used `seconds` of CPU time.
void Compute(double seconds) {
  while (static_cast<double>(std::clock()) < seconds * CLOCKS_PER_SEC) {
  }
}

TEST(CoreUseMeter, TellsOwnWorkFromThatOfOthers) {
  const CoreUseMeter meter;
  const pid_t other = fork();
  if (other == 0) {
    for (;;) Compute(1e9);
  }
  std::this_thread::sleep_for(milliseconds(600));
  const std::optional<CoreUse> beside_other = meter.Read();
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  const CoreUseMeter alone;
  const auto begin = std::chrono::steady_clock::now();
  Compute(static_cast<double>(std::clock()) / CLOCKS_PER_SEC + 0.4);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::optional<CoreUse> own = alone.Read();

  ASSERT_TRUE(beside_other && own);
  EXPECT_LT(beside_other->own, 0.2);
  EXPECT_GT(beside_other->busy, 0.2);  // a lower bound: the machine may have other work
  EXPECT_LE(beside_other->busy, beside_other->cores + 0.1);
  EXPECT_NEAR(own->own, 0.4 / wall, 0.1);
  EXPECT_GE(own->busy, own->own - 0.15);
  EXPECT_EQ(own->machine, beside_other->machine);
  EXPECT_EQ(own->process, beside_other->process);
}

TEST(CoreUseMeter, CountsAThreadsWorkAlone) {
  const CoreUseMeter of_thread(CoreUseMeter::Of::kThread), of_process;
  std::thread([] { Compute(static_cast<double>(std::clock()) / CLOCKS_PER_SEC + 0.4); }).join();
  const std::optional<CoreUse> thread = of_thread.Read(), process = of_process.Read();
  ASSERT_TRUE(thread && process);
  EXPECT_LT(thread->own, 0.2);
  EXPECT_GT(process->own, 0.2);
  EXPECT_NE(thread->process, process->process);
}

TEST(CoreUseMeter, SaysNothingOfMoments) { EXPECT_FALSE(CoreUseMeter().Read()); }

std::optional<CoreUse> Use(const char* machine, const char* process, double busy, double own,
                           const char* places = "11") {
  return CoreUse{machine, process, places, static_cast<double>(std::string(places).size()), busy, own};
}

TEST(SharedCores, OfRanksOfOneMachineAddUp) {
  const auto cores = FullestCores({Use("a", "1", 1.9, 0.9), Use("a", "2", 1.9, 0.8)});
  ASSERT_TRUE(cores);
  EXPECT_DOUBLE_EQ(cores->all, 2);
  EXPECT_DOUBLE_EQ(cores->own, 1.7);
  EXPECT_NEAR(cores->others, 0.2, 1e-9);
}

TEST(SharedCores, OfThreadsOfOneProcessCountOnce) {
  const auto cores = FullestCores({Use("a", "1", 1.9, 1.8), Use("a", "1", 1.9, 1.8)});
  ASSERT_TRUE(cores);
  EXPECT_DOUBLE_EQ(cores->own, 1.8);
}

TEST(SharedCores, AreOfTheCoresWithTheLeastLeft) {
  const auto cores = FullestCores({Use("a", "1", 1.0, 0.9), Use("b", "1", 2.0, 0.9)});
  ASSERT_TRUE(cores);
  EXPECT_NEAR(cores->others, 1.1, 1e-9);
}

// Two jobs on the first core of two, or ranks of one that something else has bound.
TEST(SharedCores, OfPinnedRanksAreTheirOwn) {
  const auto cores = FullestCores({Use("a", "1", 1.0, 0.5, "1"), Use("a", "2", 1.0, 1.0, "x")});
  ASSERT_TRUE(cores);
  EXPECT_EQ(cores->all, 1);
  EXPECT_NEAR(cores->others, 0.5, 1e-9);
  EXPECT_TRUE(cores->is_crowded());
  EXPECT_EQ(cores->ranks, 1);
  EXPECT_EQ(FullestCores({Use("a", "1", 1.0, 0.5, "1"), Use("a", "2", 1.0, 0.5, "1")})->ranks, 2);
}

TEST(SharedCores, AreUnknownWhereOneRankCannotTell) {
  EXPECT_FALSE(FullestCores({Use("a", "1", 1.0, 0.9), std::nullopt}));
  EXPECT_FALSE(FullestCores({}));
}

TEST(SharedCores, AreCrowdedWhereOthersTakeWhatIsNotLeft) {
  EXPECT_TRUE((SharedCores{2, 1.0, 0.9}).is_crowded());     // one rank beside a compiler
  EXPECT_TRUE((SharedCores{2, 1.8, 0.15}).is_crowded());    // two ranks beside a little
  EXPECT_FALSE((SharedCores{2, 1.95, 0.05}).is_crowded());  // two ranks alone
  EXPECT_FALSE((SharedCores{2, 1.0, 0.5}).is_crowded());    // one rank, the other core half free
  EXPECT_FALSE((SharedCores{64, 4, 30}).is_crowded());
  EXPECT_TRUE((SharedCores{1, 0.5, 0.5}).is_crowded());
  EXPECT_FALSE((SharedCores{1, 0.95, 0.05}).is_crowded());  // a core that does the system's work, too
}

}  // namespace
}  // namespace windtunnel
