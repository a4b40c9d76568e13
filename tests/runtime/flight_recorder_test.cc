#include "runtime/flight_recorder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace windtunnel {
namespace {

using State = FlightRecorder::State;

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

TEST(FlightRecorder, TellsTheLastNoteOfEveryRank) {
  auto all = FlightRecorder::Create(PathOf("notes"), 3);
  ASSERT_TRUE(all) << all.error().message;
  auto one = FlightRecorder::Open(PathOf("notes"), 1), two = FlightRecorder::Open(PathOf("notes"), 2);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(all->ranks(), 3);
  EXPECT_EQ(one->ranks(), 3);
  one->Note(-1, 5);
  two->NoteWaiting(1'000'000'007, (1 << 30) - 1);
  EXPECT_EQ(all->Last(0).state, State::kStarting);
  EXPECT_EQ(all->Last(0).op, -1);
  EXPECT_EQ(all->Last(1).state, State::kRunning);
  EXPECT_EQ(all->Last(1).step, -1);
  EXPECT_EQ(all->Last(1).op, 5);
  EXPECT_EQ(all->Last(2).state, State::kWaiting);
  EXPECT_EQ(all->Last(2).step, 1'000'000'007);
  EXPECT_EQ(all->Last(2).op, (1 << 30) - 1);
  one->NoteStepDone(7);
  EXPECT_EQ(all->Last(1).state, State::kDone);
  EXPECT_EQ(all->Last(1).step, 7);
}

TEST(FlightRecorder, KeepsTheLastNotesOldestFirst) {
  auto all = FlightRecorder::Create(PathOf("events"), 2);
  ASSERT_TRUE(all) << all.error().message;
  auto mine = FlightRecorder::Open(PathOf("events"), 1);
  EXPECT_TRUE(all->Events(1).empty());
  mine->Note(FlightRecorder::kEvaluation, 1);
  mine->NoteSubmitted(FlightRecorder::kRestore, 2, 17);
  mine->NoteWaiting(3, 2);
  std::vector<FlightRecorder::Event> events = all->Events(1);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].position.step, FlightRecorder::kEvaluation);
  EXPECT_EQ(events[1].position.step, FlightRecorder::kRestore);
  EXPECT_EQ(events[1].number, 17u);
  EXPECT_EQ(events[2].position.state, State::kWaiting);
  EXPECT_LE(events[0].time_ns, events[2].time_ns);
  const int32_t more = static_cast<int32_t>(FlightRecorder::kEvents);
  for (int32_t op = 0; op < more; ++op) mine->Note(4, op);
  events = all->Events(1);
  ASSERT_EQ(events.size(), FlightRecorder::kEvents);
  EXPECT_EQ(events.front().position.op, 0);
  EXPECT_EQ(events.back().position.op, more - 1);
  EXPECT_TRUE(all->Events(0).empty());
}

TEST(FlightRecorder, OutlivesARankThatIsKilled) {
  auto all = FlightRecorder::Create(PathOf("killed"), 1);
  ASSERT_TRUE(all) << all.error().message;
  const pid_t child = fork();
  if (child == 0) {
    auto mine = FlightRecorder::Open(PathOf("killed"), 0);
    mine->Note(12, 34);
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(all->Last(0).step, 12);
  EXPECT_EQ(all->Last(0).op, 34);
}

TEST(FlightRecorder, NamesAFileThatIsNotThereAndARankThatIsNotInIt) {
  auto missing = FlightRecorder::Open(PathOf("missing"), 0);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find(PathOf("missing")), std::string::npos);
  ASSERT_TRUE(FlightRecorder::Create(PathOf("small"), 2));
  EXPECT_FALSE(FlightRecorder::Open(PathOf("small"), 2));
  EXPECT_FALSE(FlightRecorder::Create("/nowhere/at/all", 2));
}

// A note is a store to a cache line that nobody else writes. The bound leaves room for a sanitizer and a
// loaded machine. The time is this thread's CPU time, so that the bound holds on a busy machine.
TEST(FlightRecorder, ANoteCostsNanoseconds) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  };
  auto all = FlightRecorder::Create(PathOf("cost"), 1);
  constexpr int kNotes = 1'000'000;
  const double start = now();
  for (int i = 0; i < kNotes; ++i) all->Note(i, i & 1023);
  EXPECT_LT((now() - start) / kNotes, 200.0);
}

TEST(FlightRecorder, PrivateNotesNeedNoFile) {
  FlightRecorder recorder = FlightRecorder::Private();
  recorder.Note(3, 4);
  EXPECT_EQ(recorder.Last(0).op, 4);
}

}  // namespace
}  // namespace windtunnel
