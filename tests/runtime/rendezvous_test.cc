#include "runtime/rendezvous.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "runtime/cores.h"
#include "runtime/node_group.h"
#include "runtime/socket.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

int FreePort() { return ListenOn("127.0.0.1", 0)->port; }

Rendezvous OfRank(int rank, int ranks, int port, std::string scenario = "lr: 0.1\nseed: 0\n") {
  Rendezvous rendezvous;
  rendezvous.member = rank;
  rendezvous.members = ranks;
  rendezvous.port = port;
  rendezvous.token = "token";
  rendezvous.scenario = std::move(scenario);
  rendezvous.deadline = milliseconds(10'000);
  return rendezvous;
}

// Each participant's error; "" if it has met the others.
std::vector<std::string> MeetAll(const std::vector<Rendezvous>& all) {
  std::vector<std::string> errors(all.size());
  std::vector<Result<MemberMeeting>> meetings(all.size());  // keeps the first one's store until all have met
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      meetings[i] = Meet(all[i]);
      errors[i] = meetings[i] ? "" : meetings[i].error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(Rendezvous, RanksWithTheSameScenarioMeetAndShareAStore) {
  const int port = FreePort();
  std::thread other([&] {
    const auto meeting = Meet(OfRank(1, 2, port));
    ASSERT_TRUE(meeting) << meeting.error().message;
    EXPECT_EQ(meeting->interface, "127.0.0.1");
    EXPECT_TRUE(meeting->store->Set("from", "1"));
    EXPECT_TRUE(meeting->store->Get("heard", milliseconds(10'000)));
  });
  const auto meeting = Meet(OfRank(0, 2, port));
  ASSERT_TRUE(meeting) << meeting.error().message;
  EXPECT_EQ(meeting->store->Get("from", milliseconds(10'000)).value_or(""), "1");
  EXPECT_TRUE(meeting->store->Set("heard", ""));
  other.join();
}

TEST(Rendezvous, AMembersAddressIsThatOfTheInterfaceThatItIsGiven) {
  Rendezvous alone = OfRank(0, 1, FreePort());
  alone.interfaces = "lo,eth0";
  const auto meeting = Meet(alone);
  ASSERT_TRUE(meeting) << meeting.error().message;
  EXPECT_EQ(meeting->interface, "127.0.0.1");
  alone = OfRank(0, 1, FreePort());
  alone.interfaces = "nowhere0";
  const auto refused = Meet(alone);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "GLOO_SOCKET_IFNAME is 'nowhere0', expected an interface of this machine that has an address");
}

TEST(Rendezvous, RanksThatDisagreeOnTheScenarioAreToldWhoAndWhere) {
  const int port = FreePort();
  const auto errors =
      MeetAll({OfRank(0, 3, port), OfRank(1, 3, port), OfRank(2, 3, port, "lr: 0.1\nseed: 7\n")});
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("rank 2 ("), std::string::npos) << error;
    EXPECT_NE(error.find("has another scenario or command line than rank 0: 'seed: 7' instead of 'seed: 0'"),
              std::string::npos)
        << error;
  }
}

TEST(Rendezvous, RanksThatNeverComeAreNamedWithTheDeadline) {
  const int port = FreePort();
  Rendezvous first = OfRank(0, 4, port), second = OfRank(1, 4, port);
  first.deadline = second.deadline = milliseconds(500);
  const auto start = Clock::now();
  for (const std::string& error : MeetAll({first, second})) {
    const std::string expected = fmt::format("ranks 2 and 3 did not come to 127.0.0.1:{} within 0.5 s", port);
    EXPECT_NE(error.find(expected), std::string::npos) << error;
  }
  EXPECT_LT(Clock::now() - start, milliseconds(10'000));
}

TEST(Rendezvous, WhatMayBeTheReasonThatOthersDoNotComeIsSaid) {
  Rendezvous alone = OfRank(0, 2, FreePort());
  alone.deadline = milliseconds(50);
  alone.advice = "srun starts all of them";
  const std::string error = MeetAll({alone})[0], end = "within 0.05 s; srun starts all of them";
  EXPECT_EQ(error.substr(error.size() - std::min(error.size(), end.size())), end) << error;
}

TEST(Rendezvous, ANumberIsOfOneProcessAndTheOthersMeet) {
  const int port = FreePort();
  std::string surplus, late;
  std::thread others([&] {
    auto second = Meet(OfRank(1, 2, port));
    ASSERT_TRUE(second) << second.error().message;
    surplus = MeetAll({OfRank(1, 2, port)})[0];
    second = Failed("ended");
    const auto store = ConnectStore("127.0.0.1", port, "token", milliseconds(10'000));
    ASSERT_TRUE((*store)->Get("rendezvous/claim/1/0/ended", milliseconds(10'000)));
    late = MeetAll({OfRank(1, 2, port)})[0];
    EXPECT_TRUE((*store)->Set("told", ""));
  });
  const auto first = Meet(OfRank(0, 2, port));
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->store->Get("told", milliseconds(30'000)));
  others.join();
  EXPECT_EQ(surplus.find("rank 1 is there already ("), 0u) << surplus;
  EXPECT_NE(surplus.find("each number is of one process"), std::string::npos) << surplus;
  EXPECT_EQ(late, "rank 1 has ended since all met, and cannot be followed: all begin together");
}

TEST(Rendezvous, OfTwoWithOneNumberAtOnceOneMeetsTheOthers) {
  const int port = FreePort();
  const auto errors =
      MeetAll({OfRank(0, 3, port), OfRank(1, 3, port), OfRank(1, 3, port), OfRank(2, 3, port)});
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[3], "");
  EXPECT_NE(errors[1].empty(), errors[2].empty()) << errors[1] << errors[2];
  EXPECT_NE((errors[1] + errors[2]).find("rank 1 "), std::string::npos) << errors[1] << errors[2];
}

TEST(Rendezvous, WhoeverIsKilledBeforeAllHaveMetMayBeFollowedByAnotherOfItsNumber) {
  const int port = FreePort();
  const pid_t killed = fork();
  if (killed == 0) _exit(Meet(OfRank(1, 3, port)) ? 0 : 1);
  std::thread first([&] {
    const auto meeting = Meet(OfRank(0, 3, port));
    ASSERT_TRUE(meeting) << meeting.error().message;
    EXPECT_TRUE(meeting->store->Get("told", milliseconds(10'000)));
  });
  const auto store = ConnectStore("127.0.0.1", port, "token", milliseconds(10'000));
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_TRUE((*store)->Get("rendezvous/1", milliseconds(10'000)));
  kill(killed, SIGKILL);
  waitpid(killed, nullptr, 0);
  EXPECT_TRUE((*store)->Get("rendezvous/claim/1/0/ended", milliseconds(10'000)));
  std::string error;
  std::thread second([&] { error = MeetAll({OfRank(1, 3, port)})[0]; });
  while (!(*store)->Has("rendezvous/claim/1/1").value_or(true)) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(MeetAll({OfRank(2, 3, port)})[0], "");
  second.join();
  EXPECT_EQ(error, "");
  EXPECT_TRUE((*store)->Set("told", ""));
  first.join();
}

TEST(Rendezvous, WithoutTheFirstRankNobodyAnswers) {
  // A port that is bound but not listened on, so that nobody else listens there either.
  const FileDescriptor kept(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(kept.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(kept.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  Rendezvous alone = OfRank(1, 2, ntohs(address.sin_port));
  alone.deadline = milliseconds(200);
  const std::string error = MeetAll({alone})[0];
  EXPECT_NE(error.find("nobody answers at 127.0.0.1:"), std::string::npos) << error;
}

TEST(Rendezvous, APortThatIsTakenIsNamed) {
  const auto taken = ListenOn("127.0.0.1", 0);
  const std::string error = MeetAll({OfRank(0, 2, taken->port)})[0];
  EXPECT_NE(error.find(fmt::format("port {} on 127.0.0.1 is taken", taken->port)), std::string::npos)
      << error;
}

TEST(Rendezvous, WhoeverHasAnotherTokenIsTurnedAway) {
  const int port = FreePort();
  Rendezvous first = OfRank(0, 2, port), stranger = OfRank(1, 2, port);
  first.deadline = milliseconds(1'000);
  stranger.token = "guess";
  const auto errors = MeetAll({first, stranger});
  EXPECT_NE(errors[0].find("rank 1 did not come"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("refused this process"), std::string::npos) << errors[1];
}

NodeOptions OfNode(int node, int port) {
  NodeOptions options;
  options.node = node;
  options.nodes = 2;
  options.master_port = port;
  options.token = "token";
  options.deadline = milliseconds(10'000);
  return options;
}

TEST(NodeGroup, TheFirstNodeSaysWhatIsRunUntilItEnds) {
  const int port = FreePort();
  std::vector<std::string> followed;
  std::thread other([&] {
    auto nodes = NodeGroup::Meet(OfNode(1, port), "x");
    ASSERT_TRUE(nodes) << nodes.error().message;
    while (auto job = *(*nodes)->Next()) followed.push_back(*job);
  });
  {
    auto nodes = NodeGroup::Meet(OfNode(0, port), "x");
    ASSERT_TRUE(nodes) << nodes.error().message;
    EXPECT_TRUE((*nodes)->shares_clock());
    EXPECT_TRUE((*nodes)->Announce("calibrate"));
    EXPECT_TRUE((*nodes)->Announce("run"));
  }
  other.join();
  EXPECT_EQ(followed, (std::vector<std::string>{"calibrate", "run"}));
}

TEST(NodeGroup, NodesOfOneMachineShareItsCores) {
  NodeOptions options[] = {OfNode(0, FreePort()), {}};
  options[0].ranks_per_node = 3;
  options[1] = options[0];
  options[1].node = 1;
  const auto check = [](const NodeOptions& own) {
    auto nodes = NodeGroup::Meet(own, "x");
    ASSERT_TRUE(nodes) << nodes.error().message;
    EXPECT_TRUE((*nodes)->shares_clock());
    EXPECT_EQ((*nodes)->ranks_before(), 3 * own.node);
    EXPECT_EQ((*nodes)->cores_here(), std::vector<std::string>(6, UsableCoresText()));
    if (own.node == 1) {
      EXPECT_FALSE(*(*nodes)->Next());
    }
  };
  std::thread other([&] { check(options[1]); });
  check(options[0]);
  other.join();
}

TEST(NodeGroup, ARankThatWasKilledGoesBeforeThoseThatMissIt) {
  const int port = FreePort();
  std::thread other([&] {
    auto nodes = NodeGroup::Meet(OfNode(1, port), "x");
    ASSERT_TRUE(nodes) << nodes.error().message;
    (void)(*nodes)->Next();
    (*nodes)->Fail({.message = "rank 1 was killed by signal 9 (Killed)", .rank_was_killed = true});
    EXPECT_FALSE(*(*nodes)->Next());
  });
  {
    auto nodes = NodeGroup::Meet(OfNode(0, port), "x");
    ASSERT_TRUE(nodes) << nodes.error().message;
    EXPECT_TRUE((*nodes)->Announce("run"));
    while ((*nodes)->ReasonToEnd().empty()) std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ((*nodes)->ReasonToEnd(), "node 1: rank 1 was killed by signal 9 (Killed)");
    EXPECT_EQ((*nodes)->BestExplanation({"rank 0 exited with status 1"}),
              "node 1: rank 1 was killed by signal 9 (Killed)");
  }
  other.join();
}

// The two nodes of one job, in this process.
std::pair<std::unique_ptr<NodeGroup>, std::unique_ptr<NodeGroup>> TwoNodes() {
  const int port = FreePort();
  std::unique_ptr<NodeGroup> second;
  std::thread other([&] { second = *NodeGroup::Meet(OfNode(1, port), "x"); });
  auto first = *NodeGroup::Meet(OfNode(0, port), "x");
  other.join();
  return {std::move(first), std::move(second)};
}

TEST(NodeGroup, ANodeThatIsGoneIsNamedToAllWhateverElseTheySay) {
  auto [first, second] = TwoNodes();
  EXPECT_TRUE(first->Announce("run"));
  EXPECT_TRUE(first->AllThere());
  first->Fail({"rank 0 exited with status 1"});
  second.reset();  // its connection ends, as when its process is killed
  while (first->AllThere()) std::this_thread::sleep_for(milliseconds(5));
  const std::string gone = "node 1 is gone: its launcher has ended, or does not answer";
  EXPECT_EQ(first->ReasonToEnd(), gone);
  EXPECT_EQ(first->BestExplanation({"rank 0 exited with status 1"}), gone);
}

TEST(NodeGroup, ANodeThatLeavesSaysWhy) {
  auto [first, second] = TwoNodes();
  second->Leave("interrupted by signal 2 (Interrupt)");
  EXPECT_EQ(first->ReasonToEnd(), "node 1 is gone: interrupted by signal 2 (Interrupt)");
  second.reset();
  EXPECT_FALSE(first->AllThere());
  EXPECT_EQ(first->BestExplanation({"rank 0 exited with status 1"}), first->ReasonToEnd());
}

TEST(NodeGroup, WrongInputIsOfOneJob) {
  auto [first, second] = TwoNodes();
  EXPECT_TRUE(first->Announce("run"));
  EXPECT_TRUE(*second->Next());
  EXPECT_FALSE(first->FoundInputWrong());
  second->Fail({.message = "rank 1 exited with status 2", .input_wrong = true});
  EXPECT_TRUE(first->FoundInputWrong());
  EXPECT_TRUE(first->Announce("another"));
  EXPECT_FALSE(first->FoundInputWrong());
  second.reset();
}

TEST(NodeGroup, TheOthersNoticeThatTheFirstNodeIsGone) {
  auto [first, second] = TwoNodes();
  std::thread leaves([&first = first] { first.reset(); });  // waits for the other's farewell
  EXPECT_FALSE(*second->Next());
  leaves.join();
  EXPECT_NE(second->ReasonToEnd().find("node 0 is gone"), std::string::npos);
}

}  // namespace
}  // namespace windtunnel
