// Failures among ranks: every rank soon gets an error that tells what happened, and nothing hangs.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "tests/base/sanitizers.h"
#include "tests/runtime/group_of_threads.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;
using Clock = Communicator::Clock;

// Enough for ranks to find each other on a busy machine; short, since every test of a deadline waits for it.
constexpr milliseconds kDeadline{kHasThreadSanitizer ? 5'000 : 1'000};

class EveryCommunicatorFailure : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Transports, EveryCommunicatorFailure, testing::ValuesIn(kTransports),
                         [](const auto& info) { return NameOf(info.param); });

TEST_P(EveryCommunicatorFailure, APeerThatIsGoneFailsTheOperatorAndAllLaterOnes) {
  for (int64_t elements : {100, 1'000'000}) {
    WithGroup(GetParam(), 2, [&](Communicator& group) {
      if (group.rank() == 1) return;  // leaves, which destroys its communicator
      std::vector<float> x(static_cast<size_t>(elements));
      const auto start = Clock::now();
      Status failed = RunCollective(group, AllReduceOf(elements), Ref(x), Ref(x));
      ASSERT_FALSE(failed);
      const std::string& text = failed.error().message;
      for (const char* part : {"rank 0 of group 'group'", "all_reduce 'test'", "number 1", "rank 1"})
        EXPECT_NE(text.find(part), std::string::npos) << text;
      Status later = RunCollective(group, AllReduceOf(elements), Ref(x), Ref(x));
      ASSERT_FALSE(later);
      EXPECT_EQ(later.error().message, text);
      EXPECT_LT(Clock::now() - start, milliseconds(20'000));
    });
  }
}

TEST_P(EveryCommunicatorFailure, FailureOfOneRankReachesAll) {
  for (int64_t elements : {100, 1'000'000}) {
    WithGroup(GetParam(), 4, [&](Communicator& group) {
      if (group.rank() == 2) return;
      std::vector<float> x(static_cast<size_t>(elements));
      const auto start = Clock::now();
      EXPECT_FALSE(RunCollective(group, AllReduceOf(elements), Ref(x), Ref(x)));
      EXPECT_LT(Clock::now() - start, milliseconds(20'000));
    });
  }
}

TEST_P(EveryCommunicatorFailure, ASilentPeerMeetsTheDeadlineAndTheMessageTellsBothViews) {
  for (int64_t elements : {100, 1'000'000}) {
    const Shared<std::atomic<bool>> done;
    WithGroup(
        GetParam(), 2,
        [&](Communicator& group) {
          if (group.rank() == 1) {
            while (!*done) std::this_thread::sleep_for(milliseconds(5));
            return;
          }
          std::vector<float> x(static_cast<size_t>(elements));
          Status failed = RunCollective(group, AllReduceOf(elements), Ref(x), Ref(x));
          *done = true;
          ASSERT_FALSE(failed);
          const std::string& text = failed.error().message;
          EXPECT_NE(text.find("within"), std::string::npos) << text;
          EXPECT_NE(text.find("rank 1 did not get that far"), std::string::npos) << text;
        },
        kDeadline);
  }
}

TEST_P(EveryCommunicatorFailure, RanksThatDisagreeAreToldBothViews) {
  WithGroup(GetParam(), 2, [](Communicator& group) {
    std::vector<float> x(100);
    const int64_t elements = group.rank() == 0 ? 100 : 50;
    Status failed = RunCollective(group, AllReduceOf(elements), Ref(x), Ref(x));
    ASSERT_FALSE(failed);
    EXPECT_NE(failed.error().message.find("100 x fp32"), std::string::npos) << failed.error().message;
    EXPECT_NE(failed.error().message.find("50 x fp32"), std::string::npos) << failed.error().message;
  });
  // Large operators never meet: the deadline ends both, and the store has both ranks' views.
  WithGroup(
      GetParam(), 2,
      [](Communicator& group) {
        std::vector<float> x(1'000'000), y(1'000'000);
        const auto kind = group.rank() == 0 ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter;
        Status failed = RunCollective(group, {kind, DType::kFloat32, 1'000'000, 0}, Ref(x), Ref(y));
        ASSERT_FALSE(failed);
        EXPECT_NE(failed.error().message.find("all_reduce of"), std::string::npos) << failed.error().message;
        EXPECT_NE(failed.error().message.find("reduce_scatter of"), std::string::npos)
            << failed.error().message;
      },
      kDeadline);
}

// Rank 1 leaves out the first of two operators, so its second one meets rank 0's first.
TEST_P(EveryCommunicatorFailure, ARankThatSkipsAnOperatorIsToldWithBothViews) {
  for (int64_t elements : {100, 1'000'000}) {
    WithGroup(
        GetParam(), 2,
        [&](Communicator& group) {
          std::vector<float> x(static_cast<size_t>(2 * elements));
          Status failed;
          if (group.rank() == 0) failed = RunCollective(group, AllReduceOf(elements), Ref(x), Ref(x));
          if (failed) failed = RunCollective(group, AllReduceOf(2 * elements), Ref(x), Ref(x));
          ASSERT_FALSE(failed);
          const std::string& text = failed.error().message;
          EXPECT_NE(text.find(fmt::format("number 1, all_reduce of {} x fp32", elements)), std::string::npos)
              << text;
          EXPECT_NE(text.find(fmt::format("number 1, all_reduce of {} x fp32", 2 * elements)),
                    std::string::npos)
              << text;
        },
        kDeadline);
  }
}

TEST_P(EveryCommunicatorFailure, EndsAtOnceWithOperatorsInProgress) {
  if (GetParam() == Transport::kDevices) GTEST_SKIP() << "Submit waits for the other thread";
  for (int64_t elements : {100, 60'000, 1'000'000}) {
    const Shared<std::atomic<bool>> done;
    std::vector<float> x(static_cast<size_t>(elements)), scratch(1 << 20);
    const auto start = std::chrono::steady_clock::now();
    const auto work = [&](Communicator& group) {
      if (group.rank() == 1) {  // submits nothing
        while (!*done) std::this_thread::sleep_for(milliseconds(5));
        return;
      }
      const TensorRef writes[] = {Ref(x), Ref(scratch)};
      for (int i = 0; i < 3; ++i) group.Submit(AllReduceOf(elements), writes, writes, "x");
      std::this_thread::sleep_for(milliseconds(50));
    };
    WithGroup(GetParam(), 2, work, milliseconds(60'000), [&](int rank) { *done = *done || rank == 0; });
    EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(20'000)) << "it waited for its deadline";
  }
}

TEST(CommunicatorFailure, ADeviceThatRefusesASumFailsItOnAllRanks) {
  WithThreads(3, milliseconds(20'000), [](const std::shared_ptr<ThreadGroup>& group, int rank) {
    QueuedDevice device(std::chrono::microseconds(100));
    if (rank == 1) device.RefuseFrom(1);
    std::vector<float> x(1000);  // outlives the communicator, which waits for what is under way
    const auto communicator = MakeDeviceThreadCommunicator(group, rank, device);
    ASSERT_TRUE(communicator) << communicator.error().message;
    for (int i = 0; i < 2; ++i) {
      const Status failed = RunCollective(**communicator, AllReduceOf(1000), Ref(x), Ref(x));
      ASSERT_FALSE(failed);
      EXPECT_NE(failed.error().message.find(fmt::format("rank {} of group 'group': all_reduce 'test'", rank)),
                std::string::npos)
          << failed.error().message;
      EXPECT_NE(failed.error().message.find("the device refuses"), std::string::npos)
          << failed.error().message;
    }
  });
}

TEST(CommunicatorFailure, APeerThatNeverComesFailsTheConnectionOfDevices) {
  QueuedDevice device(std::chrono::microseconds(0));
  const auto group = MakeThreadGroup({.name = "group", .size = 2, .timeout = milliseconds(50)});
  const auto communicator = MakeDeviceThreadCommunicator(group, 0, device);
  ASSERT_FALSE(communicator);
  const std::string& text = communicator.error().message;
  EXPECT_NE(text.find("rank 0 of group 'group': barrier 'connect'"), std::string::npos) << text;
  EXPECT_NE(text.find("not all ranks came within 50 ms"), std::string::npos) << text;
}

// Runs `work` as rank 0 of a group over Gloo whose rank 1 is another process. That process runs `peer`, whose
// operators time out after kDeadline, and ends.
void WithPeerProcess(const std::function<void(Communicator&)>& peer,
                     const std::function<void(Communicator&, pid_t)>& work) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    int port = 0;
    if (read(ends[0], &port, sizeof port) != sizeof port) _exit(1);
    auto store = ConnectStore("127.0.0.1", port, "test", milliseconds(20'000));
    auto group = MakeGlooCommunicator(**store, {.name = "group", .rank = 1, .size = 2, .timeout = kDeadline});
    peer(**group);
    _exit(0);
  }
  auto server = ServeStore("127.0.0.1", 0, "test");
  const int port = (*server)->port();
  ASSERT_EQ(write(ends[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  auto group = MakeGlooCommunicator(**server, {.name = "group", .rank = 0, .size = 2});
  ASSERT_TRUE(group) << group.error().message;
  work(**group, child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

// Kills a process in the middle of a collective, as the kernel's out-of-memory killer would.
TEST(CommunicatorFailure, KillingAPeerProcessFailsTheOperatorWithinSeconds) {
  for (int64_t elements : {2000, 4'000'000}) {
    const auto peer = [&](Communicator& group) {
      std::vector<float> x(static_cast<size_t>(elements)),
          scratch(static_cast<size_t>(CollectiveScratchElements(AllReduceOf(elements), 2)));
      const TensorRef writes[] = {Ref(x), Ref(scratch)};
      while (group.Wait(group.Submit(AllReduceOf(elements), writes, writes, "x"))) {
      }
    };
    WithPeerProcess(peer, [&](Communicator& group, pid_t child) {
      std::vector<float> x(static_cast<size_t>(elements));
      for (int i = 0; i < 5; ++i) EXPECT_OK(RunCollective(group, AllReduceOf(elements), Ref(x), Ref(x)));
      std::thread killer([child] {
        std::this_thread::sleep_for(milliseconds(20));
        kill(child, SIGKILL);
      });
      Status status;
      const auto start = Clock::now();
      while (status) status = RunCollective(group, AllReduceOf(elements), Ref(x), Ref(x));
      EXPECT_LT(Clock::now() - start, milliseconds(10'000));
      EXPECT_NE(status.error().message.find("rank 1"), std::string::npos) << status.error().message;
      killer.join();
    });
  }
}

// The second half of the peer's memory cannot be accessed, so the peer fails in the middle of the message and
// its process ends.
TEST(CommunicatorFailure, APeerThatDiesWithinAMessageFailsTheOperatorLongBeforeTheDeadline) {
  constexpr int64_t kElements = 8 << 20;
  constexpr size_t kBytes = kElements * sizeof(float);
  for (const bool peer_sends : {true, false}) {
    const auto peer = [&](Communicator& group) {
      void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mprotect(static_cast<char*>(memory) + kBytes / 2, kBytes / 2, PROT_NONE) != 0) return;
      const TensorRef all[] = {{memory, kElements}};
      (void)group.Wait(peer_sends ? group.Submit(Send{DType::kFloat32, kElements, 0}, all, {}, "send")
                                  : group.Submit(Receive{DType::kFloat32, kElements, 0}, {}, all, "receive"));
    };
    WithPeerProcess(peer, [&](Communicator& group, pid_t) {
      std::vector<float> x(kElements);
      const TensorRef all[] = {Ref(x)};
      const auto start = Clock::now();
      const Status failed =
          group.Wait(peer_sends ? group.Submit(Receive{DType::kFloat32, kElements, 1}, {}, all, "receive")
                                : group.Submit(Send{DType::kFloat32, kElements, 1}, all, {}, "send"));
      ASSERT_FALSE(failed);
      EXPECT_LT(Clock::now() - start, milliseconds(20'000));
      EXPECT_NE(failed.error().message.find("rank 1"), std::string::npos) << failed.error().message;
    });
  }
}

TEST(CommunicatorFailure, APeerThatNeverComesFailsTheConnection) {
  auto server = ServeStore("127.0.0.1", 0, "test");
  auto group =
      MakeGlooCommunicator(**server, {.name = "group", .rank = 0, .size = 2, .timeout = milliseconds(200)});
  ASSERT_FALSE(group);
  EXPECT_NE(group.error().message.find("rank 0 of group 'group'"), std::string::npos)
      << group.error().message;
}

}  // namespace
}  // namespace windtunnel
