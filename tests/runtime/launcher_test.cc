#include "runtime/launcher.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <new>
#include <set>
#include <thread>

#include "runtime/signal_pipe.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Ranks are shell scripts that write their output and their process ID to files of a directory.
class LauncherTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/launcher-XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
  }

  LaunchOptions Options(int ranks, const std::string& script) {
    LaunchOptions options;
    options.ranks = ranks;
    options.argv = {"/bin/sh", "-c", "echo $$ > $DIR/pid$RANK\n" + script};
    options.environment = {{"DIR", directory_}};
    return options;
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(directory_ + "/" + name);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return text.empty() ? text : text.substr(0, text.find_last_not_of('\n') + 1);
  }

  // The ranks' process IDs; waits until every rank has written its own.
  std::vector<pid_t> PidsOf(int ranks) const {
    std::vector<pid_t> pids;
    const auto deadline = Clock::now() + milliseconds(30'000);
    for (int rank = 0; rank < ranks; ++rank) {
      std::string pid;
      while ((pid = Read("pid" + std::to_string(rank))).empty() && Clock::now() < deadline)
        std::this_thread::sleep_for(milliseconds(5));
      pids.push_back(std::atoi(pid.c_str()));
    }
    return pids;
  }

  void ExpectGone(const std::vector<pid_t>& pids) const {
    for (pid_t pid : pids) {
      if (pid <= 0) continue;  // ended before it could write its ID
      const auto deadline = Clock::now() + milliseconds(10'000);
      while (kill(pid, 0) == 0 && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(5));
      EXPECT_EQ(kill(pid, 0), -1) << "process " << pid << " is left";
    }
  }

  std::string directory_;
};

// The error of a launch that must fail, and soon.
std::string FailureOf(const LaunchOptions& options) {
  const auto start = Clock::now();
  Status status = LaunchRanks(options);
  EXPECT_LT(Clock::now() - start, milliseconds(10'000));
  if (status) return "success";
  EXPECT_EQ(status.error().kind, ErrorKind::kFailed);
  return status.error().message;
}

TEST_F(LauncherTest, GivesEveryRankTorchrunsEnvironment) {
  LaunchOptions options =
      Options(2,
              "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $MASTER_PORT "
              "$OMP_NUM_THREADS $OPENBLAS_NUM_THREADS > $DIR/out$RANK");
  options.master_port = 12345;
  Status status = LaunchRanks(options);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(Read("out0"), "0 0 2 2 0 127.0.0.1 12345 1 1");
  EXPECT_EQ(Read("out1"), "1 1 2 2 0 127.0.0.1 12345 1 1");
}

TEST_F(LauncherTest, PinsRankToCoreModuloTheCoresOfItsOwnMask) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const int cores = CPU_COUNT(&allowed);
  ASSERT_TRUE(LaunchRanks(Options(cores + 1, "grep Cpus_allowed_list /proc/$$/status > $DIR/out$RANK")));
  std::set<std::string> seen;
  for (int rank = 0; rank < cores; ++rank) {
    const std::string list = Read("out" + std::to_string(rank));
    EXPECT_EQ(list.find_first_of(",-"), std::string::npos) << list;  // a single core
    seen.insert(list);
  }
  EXPECT_EQ(static_cast<int>(seen.size()), cores);
  EXPECT_EQ(Read("out" + std::to_string(cores)), Read("out0"));
  const std::string of_second = Read("out" + std::to_string(1 % cores));
  LaunchOptions later = Options(1, "grep Cpus_allowed_list /proc/$$/status > $DIR/out0");
  later.first_core = 1;  // the first core is another node's, on the same machine
  ASSERT_TRUE(LaunchRanks(later));
  EXPECT_EQ(Read("out0"), of_second);
}

TEST_F(LauncherTest, LeavesRanksOnAllCoresWhenNotAskedToPin) {
  LaunchOptions options = Options(1, "grep Cpus_allowed: /proc/$$/status > $DIR/out");
  options.pin = false;
  ASSERT_TRUE(LaunchRanks(options));
  std::ifstream status("/proc/self/status");
  std::string line, own;
  while (std::getline(status, line))
    if (line.starts_with("Cpus_allowed:")) own = line;
  EXPECT_EQ(Read("out"), own);
}

TEST_F(LauncherTest, NamesTheRankThatWasKilledAndItsLastOperatorAndEndsTheOthers) {
  LaunchOptions options = Options(3, "if [ $RANK = 1 ]; then sleep 0.1; kill -9 $$; fi; exec sleep 60");
  options.last_op = [](int rank) { return "'up' (gemm, backward) of step 1" + std::to_string(rank); };
  EXPECT_EQ(FailureOf(options),
            "rank 1 was killed by signal 9 (Killed, as where memory runs out); its last operator was 'up' "
            "(gemm, backward) of step 11");
  ExpectGone(PidsOf(3));
}

TEST_F(LauncherTest, TellsWhatARankThatFailedHasSaid) {
  LaunchOptions options = Options(2, "if [ $RANK = 0 ]; then exit 3; fi; exec sleep 60");
  options.describe_error = [](int rank) { return rank == 0 ? "the disk is full" : "wrong"; };
  EXPECT_EQ(FailureOf(options), "rank 0 exited with status 3: the disk is full");
  ExpectGone(PidsOf(2));
}

TEST_F(LauncherTest, TellsThatMemoryRanOut) {
  EXPECT_EQ(FailureOf(Options(1, fmt::format("exit {}", kMemoryExhausted))),
            "rank 0 ran out of the machine's memory");
}

TEST_F(LauncherTest, WhatARankHasStartedEndsWithIt) {
  EXPECT_EQ(FailureOf(Options(1, "sleep 60 & echo $! > $DIR/started; exit 3")),
            "rank 0 exited with status 3");
  const std::string path = "/proc/" + Read("started") + "/stat";
  const auto deadline = Clock::now() + milliseconds(10'000);
  std::string name = "?", state;
  do {  // until it is gone, or a zombie that its new parent has not reaped
    std::ifstream(path) >> name >> name >> state;
  } while (std::ifstream(path) && state != "Z" && Clock::now() < deadline);
  EXPECT_TRUE(!std::ifstream(path) || state == "Z") << path << ": " << name << " " << state;
}

// Rank 0 notices that rank 1 is dying before the kernel has reported it.
TEST_F(LauncherTest, WhoWasKilledGoesBeforeWhoComplains) {
  LaunchOptions options = Options(2, "if [ $RANK = 0 ]; then exit 1; fi; sleep 0.1; kill -9 $$");
  options.grace = milliseconds(2'000);
  EXPECT_EQ(FailureOf(options), "rank 1 was killed by signal 9 (Killed, as where memory runs out)");
}

TEST_F(LauncherTest, KillsRanksThatIgnoreSigterm) {
  LaunchOptions options =
      Options(2,
              "trap '' TERM; touch $DIR/ready$RANK; "
              "if [ $RANK = 0 ]; then while [ ! -e $DIR/ready1 ]; do sleep 0.01; done; exit 1; fi; "
              "while :; do sleep 60; done");
  options.patience = milliseconds(300);
  EXPECT_EQ(FailureOf(options), "rank 0 exited with status 1");
  ExpectGone(PidsOf(2));
}

TEST_F(LauncherTest, WaitsForAllRanksAndTicksMeanwhile) {
  int ticks = 0;
  LaunchOptions options = Options(2, "sleep 0.3; echo done > $DIR/out$RANK");
  options.tick = [&] { ++ticks; };
  EXPECT_TRUE(LaunchRanks(options));
  EXPECT_EQ(Read("out0"), "done");
  EXPECT_EQ(Read("out1"), "done");
  EXPECT_GE(ticks, 2);
}

TEST_F(LauncherTest, NamesAProgramThatCannotStart) {
  LaunchOptions options = Options(2, "");
  options.argv = {"/no/such/program"};
  EXPECT_EQ(FailureOf(options), "cannot start rank 0: '/no/such/program': No such file or directory");
}

// Starts a launcher in a process of its own, which a test can signal. It exits with status 7 if the launch
// fails.
pid_t ForkLauncher(const LaunchOptions& options) {
  const pid_t launcher = fork();
  if (launcher == 0) _exit(LaunchRanks(options) ? 0 : 7);
  return launcher;
}

// Expects that the launch fails when it is interrupted.
void ExpectInterrupted(pid_t launcher, int signal) {
  kill(launcher, signal);
  int status = 0;
  waitpid(launcher, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST_F(LauncherTest, PassesSignalsOnAndLeavesNoRankBehind) {
  signal(SIGHUP, SIG_DFL);  // this test may be run under nohup itself
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t launcher = ForkLauncher(Options(2, "exec sleep 60"));
    const std::vector<pid_t> pids = PidsOf(2);
    ExpectInterrupted(launcher, signal);
    ExpectGone(pids);
    for (int rank : {0, 1}) std::remove((directory_ + "/pid" + std::to_string(rank)).c_str());
  }
}

TEST_F(LauncherTest, AnInterruptEndsItWhileRanksAreStartedStill) {
  const pid_t launcher = ForkLauncher(Options(1000, "exec sleep 60"));
  const std::vector<pid_t> first = PidsOf(1);
  ExpectInterrupted(launcher, SIGINT);
  EXPECT_EQ(Read("pid999"), "");
  ExpectGone(first);
}

// Whoever restarts a failed launch must not restart an interrupted one, even if a rank had failed just
// before.
TEST_F(LauncherTest, AnInterruptWhileRanksAreEndedIsOne) {
  LaunchOptions options =
      Options(2,
              "trap 'touch $DIR/ending' TERM; touch $DIR/ready$RANK; "
              "if [ $RANK = 1 ]; then while [ ! -e $DIR/ready0 ]; do sleep 0.01; done; exit 1; fi; "
              "while :; do sleep 0.01; done");
  options.patience = milliseconds(3'000);
  bool was_told = false;
  options.interrupted = [&](int) { was_told = true; };
  const pid_t launcher = fork();
  if (launcher == 0) _exit(!LaunchRanks(options) && was_told ? 7 : 8);
  const std::vector<pid_t> pids = PidsOf(2);
  const auto deadline = Clock::now() + milliseconds(10'000);
  while (access((directory_ + "/ending").c_str(), F_OK) != 0 && Clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(5));
  ExpectInterrupted(launcher, SIGTERM);
  ExpectGone(pids);
}

TEST_F(LauncherTest, AHangUpThatWasIgnoredAtTheStartStaysSo) {
  signal(SIGHUP, SIG_IGN);  // as nohup does
  const pid_t launcher = ForkLauncher(Options(1, "until [ -e $DIR/end ]; do sleep 0.01; done"));
  signal(SIGHUP, SIG_DFL);
  PidsOf(1);
  kill(launcher, SIGHUP);
  std::ofstream(directory_ + "/end") << "";
  int status = 0;
  waitpid(launcher, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// SIGCHLD may be ignored when a program that does not wait for its children has executed the launcher.
// Children then vanish as they end.
TEST_F(LauncherTest, HearsOfItsRanksAlsoWhereSigchldIsIgnored) {
  signal(SIGCHLD, SIG_IGN);
  EXPECT_TRUE(LaunchRanks(Options(2, "exit 0")));
  EXPECT_EQ(signal(SIGCHLD, SIG_DFL), SIG_IGN);
}

TEST_F(LauncherTest, ARankThatSomethingElseHasWaitedForHasFailed) {
  LaunchOptions options = Options(1, "exec sleep 0.3");
  options.tick = [] { waitpid(-1, nullptr, 0); };
  const Status status = LaunchRanks(options);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "rank 0 has ended, nobody knows how: something else has waited for it");
}

// A signal may arrive between the last look at the pipe and its destruction.
TEST(SignalPipe, ASignalThatNobodyAskedForComesAgain) {
  const pid_t child = fork();
  if (child == 0) {
    {
      const auto signals = SignalPipe::Make();
      raise(SIGTERM);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

TEST(SignalPipe, ASignalThatWasAskedForDoesNot) {
  const auto signals = SignalPipe::Make();
  ASSERT_TRUE(signals);
  raise(SIGTERM);
  raise(SIGINT);
  EXPECT_EQ((*signals)->Next(), SIGTERM);
}

TEST(SignalPipe, NeedsDescriptors) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto signals = SignalPipe::Make();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(signals);
  EXPECT_EQ(signals.error().message, "cannot make a pipe: Too many open files");
}

// Memory may run out in what the caller does meanwhile.
TEST_F(LauncherTest, LeavesNoRankBehindAnException) {
  LaunchOptions options = Options(2, "exec sleep 60");
  options.tick = [this] {
    PidsOf(2);
    throw std::bad_alloc();
  };
  EXPECT_THROW((void)LaunchRanks(options), std::bad_alloc);
  ExpectGone(PidsOf(2));
}

TEST_F(LauncherTest, RanksDieWithALauncherThatIsKilled) {
  const pid_t launcher = ForkLauncher(Options(2, "exec sleep 60"));
  const std::vector<pid_t> pids = PidsOf(2);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  ExpectGone(pids);
}

TEST_F(LauncherTest, RanksOfALaterNodeGoOnCounting) {
  LaunchOptions options =
      Options(2, "echo $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $OWN > $DIR/said$RANK");
  options.node = 1;
  options.nodes = 2;
  options.environment_of = [](int rank) {
    return std::map<std::string, std::string>{{"OWN", "of" + std::to_string(rank)}};
  };
  ASSERT_TRUE(LaunchRanks(options));
  EXPECT_EQ(Read("said2"), "0 4 2 1 of2");
  EXPECT_EQ(Read("said3"), "1 4 2 1 of3");
  options.argv = {"/bin/sh", "-c", "[ $RANK = 2 ] || exit 7"};
  const Status failed = LaunchRanks(options);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("rank 3 exited with status 7"), std::string::npos)
      << failed.error().message;
}

TEST_F(LauncherTest, AReasonToEndEndsTheRanks) {
  LaunchOptions options = Options(2, "sleep 100");
  options.reason_to_end = [this] {
    return Read("pid0").empty() || Read("pid1").empty() ? "" : "node 1: rank 3 died";
  };
  const auto start = Clock::now();
  const Status ended = LaunchRanks(options);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().message, "node 1: rank 3 died");
  EXPECT_LT(Clock::now() - start, milliseconds(20'000));
  ExpectGone(PidsOf(2));
}

// While ranks that ignore SIGTERM are being ended, the launcher goes on watching them.
TEST_F(LauncherTest, TheReasonThatCameFirstIsTheError) {
  for (const char* then : {"", "another reason"}) {
    LaunchOptions options = Options(1, "trap '' TERM; touch $DIR/ignores; while :; do sleep 60; done");
    options.patience = milliseconds(500);
    int given = 0;
    options.reason_to_end = [&]() -> std::string {
      if (access((directory_ + "/ignores").c_str(), F_OK) != 0) return "";
      return given++ == 0 ? "node 1: rank 3 died" : then;
    };
    EXPECT_EQ(FailureOf(options), "node 1: rank 3 died");
    ExpectGone(PidsOf(1));
    std::remove((directory_ + "/ignores").c_str());
  }
}

}  // namespace
}  // namespace windtunnel
