#include "runtime/rank_threads.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/late_devices.h"

namespace windtunnel {
namespace {

using Clock = std::chrono::steady_clock;

// Memory that each late device reports as in use; all of them count as one device.
constexpr Bytes kInUse = MiB(100);

// Whether the ranks' devices have queues, and are late.
class RanksAsThreads : public testing::TestWithParam<bool> {
 protected:
  static Plan DpPlan(int devices) {
    Scenario s = TinyMlp(devices);
    s.parallel.data.kind = DataParallelKind::kDp;
    if (GetParam()) s.cluster.device = "cuda";
    return *CompilePlan(s);
  }
};
INSTANTIATE_TEST_SUITE_P(RankThreads, RanksAsThreads, testing::Bool(),
                         [](const auto& info) { return info.param ? "OnLateDevices" : "OnTheHost"; });

// Ranks that share a store.
struct Ranks : RankThreads {
  std::unique_ptr<StoreServer> server = *ServeStore("127.0.0.1", 0, "test");
  Equipment late = LateDevices(std::chrono::microseconds(200), kInUse);
  explicit Ranks(bool on_late_devices) {
    if (on_late_devices) options.equipment = &late;
    connect = [this](int) {
      return ConnectStore("127.0.0.1", server->port(), "test", std::chrono::seconds(20));
    };
    record = [](int) -> Result<FlightRecorder> { return FlightRecorder::Private(); };
  }
};

TEST_P(RanksAsThreads, GiveTheirResultsByRank) {
  Ranks ranks(GetParam());
  ranks.work = [](RankSession& session, Store&) -> Result<std::string> {
    WT_RETURN_IF_ERROR(session.Initialize());
    WT_RETURN_IF_ERROR(session.Step());
    return fmt::format("rank {}", session.rank());
  };
  const auto results = RunRankThreads(DpPlan(3), ranks);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(*results, (std::vector<std::string>{"rank 0", "rank 1", "rank 2"}));
}

TEST_P(RanksAsThreads, TheErrorIsThatOfTheRankThatFailedFirst) {
  Ranks ranks(GetParam());
  ranks.work = [](RankSession& session, Store&) -> Result<std::string> {
    WT_RETURN_IF_ERROR(session.Initialize());
    if (session.rank() == 1) return Failed("rank 1 has had enough");
    for (;;) WT_RETURN_IF_ERROR(session.Step());
  };
  const auto start = Clock::now();
  const auto results = RunRankThreads(DpPlan(3), ranks);
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().message, "rank 1 has had enough");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

TEST_P(RanksAsThreads, ARankThatCannotBeSetUpFailsTheOthersAtOnce) {
  Ranks ranks(GetParam());
  ranks.record = [](int rank) -> Result<FlightRecorder> {
    if (rank == 2) return Failed("no flight recorder for rank 2");
    return FlightRecorder::Private();
  };
  ranks.work = [](RankSession& session, Store&) -> Result<std::string> {
    WT_RETURN_IF_ERROR(session.Initialize());
    return std::string();
  };
  const auto start = Clock::now();
  const auto results = RunRankThreads(DpPlan(3), ranks);
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().message, "no flight recorder for rank 2");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

// An exception that a library throws in a rank ends the rank, not the process.
TEST_P(RanksAsThreads, AnExceptionOfARankIsAnError) {
  Ranks ranks(GetParam());
  ranks.work = [](RankSession& session, Store&) -> Result<std::string> {
    WT_RETURN_IF_ERROR(session.Initialize());
    if (session.rank() == 1) throw std::bad_alloc();
    for (;;) WT_RETURN_IF_ERROR(session.Step());
  };
  const auto results = RunRankThreads(DpPlan(2), ranks);
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().message, "out of memory");
}

// Memory outside the allocators belongs to the process. Each rank counts its own segments and its share of
// the rest.
TEST_P(RanksAsThreads, ShareTheProcessMemoryOutsideTheirSegments) {
  Ranks ranks(GetParam());
  std::vector<RankSession::Resident> resident(2);
  std::vector<Bytes> reserved(2);
  ranks.work = [&](RankSession& session, Store&) -> Result<std::string> {
    WT_RETURN_IF_ERROR(session.Initialize());
    for (int step = 0; step < 2; ++step) WT_RETURN_IF_ERROR(session.Step());
    reserved[session.rank()] = session.executor().pool().reserved();
    WT_ASSIGN_OR_RETURN(resident[session.rank()], session.MeasureResident());
    return std::string();
  };
  ASSERT_TRUE(RunRankThreads(DpPlan(2), ranks));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(resident[rank].growth, reserved[rank] + resident[rank].outside_allocator);
    EXPECT_LT(resident[rank].outside_allocator, MiB(64));
  }
  EXPECT_GT(reserved[0], Bytes(0));
  if (GetParam()) {
    EXPECT_EQ(resident[0].outside_allocator, resident[1].outside_allocator);
    EXPECT_EQ(resident[0].growth + resident[1].growth, kInUse);
  }
}

}  // namespace
}  // namespace windtunnel
