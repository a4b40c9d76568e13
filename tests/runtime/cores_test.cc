// Which cores ranks may use, and which ranks share cores.
#include "runtime/cores.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "runtime/neighbors.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

TEST(Cores, AreSharedWhereMoreRanksMayUseThemThanThereAre) {
  EXPECT_FALSE(SharesCores("1", {"1"}));
  // Each is bound to its own core, as mpirun and srun may do.
  EXPECT_FALSE(SharesCores("1", {"1", "01"}));
  EXPECT_FALSE(SharesCores("11", {"11", "11"}));  // all may use the same two
  EXPECT_TRUE(SharesCores("11", {"11", "11", "11"}));
  EXPECT_TRUE(SharesCores("1", {"1", "1"}));
  EXPECT_TRUE(SharesCores("1", {"1", "1", "0111"}));  // the third may use other cores
  EXPECT_FALSE(SharesCores("0111", {"1", "1", "0111"}));
  EXPECT_FALSE(SharesCores("", {"", ""}));  // cores not known
}

TEST(Cores, AsTextAreThoseThatThisProcessMayUse) {
  const std::string text = UsableCoresText();
  EXPECT_EQ(std::count(text.begin(), text.end(), '1'), UsableCores());
}

// Other tests may be jobs of this machine meanwhile.
CoreClaims Claims(int first, int ranks) {
  static const uint32_t scope = std::random_device{}();
  return {first, ranks, fmt::format("test {}", scope)};
}

std::vector<int> CoresOf(const CoreClaims& claims, int first, int ranks) {
  std::vector<int> cores;
  for (int rank = first; rank < first + ranks; ++rank) {
    cpu_set_t core;
    if (!claims.CoreOf(rank, core)) return {};
    EXPECT_EQ(CPU_COUNT(&core), 1);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &core)) cores.push_back(cpu);
  }
  return cores;
}

TEST(CoreClaims, OfOneJobAreItsRanksNumbers) {
  const auto count = static_cast<int>(UsableCores());
  const std::vector<int> cores = CoresOf(Claims(0, count + 1), 0, count + 1);
  ASSERT_EQ(cores.size(), count + 1u);
  EXPECT_TRUE(std::is_sorted(cores.begin(), cores.end() - 1));
  EXPECT_EQ(cores.back(), cores.front()) << "more ranks than cores";
  EXPECT_EQ(CoresOf(Claims(1, 1), 1, 1).front(), cores[1 % count]);
}

TEST(CoreClaims, OfJobsBesideEachOtherAreDifferentWhileThereAreCores) {
  if (UsableCores() < 2) GTEST_SKIP() << "one core";
  const CoreClaims all_claims = Claims(0, static_cast<int>(UsableCores()));
  const std::vector<int> all = CoresOf(all_claims, 0, static_cast<int>(UsableCores()));
  EXPECT_EQ(std::set<int>(all.begin(), all.end()).size(), all.size());
  // All are claimed by now, so a further job shares.
  EXPECT_EQ(CoresOf(Claims(0, 1), 0, 1), std::vector<int>{all.front()});
}

TEST(CoreClaims, EndWithTheirObject) {
  if (UsableCores() < 2) GTEST_SKIP() << "one core";
  const int first = CoresOf(Claims(0, 1), 0, 1).front();
  {
    const CoreClaims held = Claims(0, 1);
    const CoreClaims beside = Claims(0, 1);
    EXPECT_NE(CoresOf(beside, 0, 1), CoresOf(held, 0, 1));
  }
  EXPECT_EQ(CoresOf(Claims(0, 1), 0, 1).front(), first);
}

TEST(Neighbors, HearWhatEachSays) {
  const auto server = ServeStore("127.0.0.1", 0, "token").value();
  Neighbors heard[2];
  std::thread second([&] {
    const auto store = ConnectStore("127.0.0.1", server->port(), "token", milliseconds(5000)).value();
    heard[1] = TellNeighbors(*store, {1, 2, milliseconds(5000)}, "device", "b").value();
  });
  heard[0] = TellNeighbors(*server, {0, 2, milliseconds(5000)}, "device", "a").value();
  second.join();
  for (const Neighbors& neighbors : heard) EXPECT_EQ(neighbors.said, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(heard[0].own, 0);
  EXPECT_EQ(heard[1].own, 1);
}

TEST(Neighbors, AreNotWaitedForForever) {
  const auto server = ServeStore("127.0.0.1", 0, "token").value();
  EXPECT_EQ(TellNeighbors(*server, {1, 2, milliseconds(20)}, "core", "b").error().kind, ErrorKind::kFailed);
  EXPECT_EQ(TellNeighbors(*server, {0, 3, milliseconds(20)}, "device", "a").error().message,
            "a rank does not tell its device");
}

}  // namespace
}  // namespace windtunnel
