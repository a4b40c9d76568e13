#include "runtime/store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "runtime/socket.h"
#include "runtime/store_wire.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = ServeStore("127.0.0.1", 0, "secret");
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }

  std::unique_ptr<Store> Connect() {
    auto store = ConnectStore("127.0.0.1", server_->port(), "secret", milliseconds(20'000));
    EXPECT_TRUE(store) << store.error().message;
    return std::move(*store);
  }

  // A bare connection, over which the test itself speaks the protocol.
  FileDescriptor ConnectRaw() {
    auto socket = ConnectTo("127.0.0.1", server_->port(), Clock::now() + milliseconds(20'000));
    EXPECT_TRUE(socket) << socket.error().message;
    return std::move(*socket);
  }

  // One that the server has welcomed.
  FileDescriptor ConnectWelcome() {
    FileDescriptor socket = ConnectRaw();
    StoreHello hello = {};
    std::memcpy(hello.magic, kStoreMagic, sizeof hello.magic);
    hello.token_bytes = 6;
    const auto deadline = Clock::now() + milliseconds(20'000);
    EXPECT_TRUE(SendAll(socket.get(), &hello, sizeof hello, deadline, "server"));
    EXPECT_TRUE(SendAll(socket.get(), "secret", 6, deadline, "server"));
    char welcome = 0;
    EXPECT_TRUE(ReceiveAll(socket.get(), &welcome, 1, deadline, "server"));
    return socket;
  }

  // Expects that the server still serves, whatever has happened before.
  void ExpectServes() {
    auto store = Connect();
    ASSERT_TRUE(store->Set("alive", "yes"));
    EXPECT_EQ(*store->Get("alive", milliseconds(20'000)), "yes");
  }

  std::unique_ptr<StoreServer> server_;
};

TEST_F(StoreTest, ClientsAndTheServersOwnProcessSeeTheSameValues) {
  auto a = Connect(), b = Connect();
  ASSERT_TRUE(a->Set("from a", "1"));
  ASSERT_TRUE(server_->Set("from server", std::string("\0binary\xff", 8)));
  EXPECT_EQ(*b->Get("from a", milliseconds(0)), "1");
  EXPECT_EQ(*server_->Get("from a", milliseconds(0)), "1");
  EXPECT_EQ(*b->Get("from server", milliseconds(0)), std::string("\0binary\xff", 8));
  ASSERT_TRUE(b->Set("from a", "2"));
  EXPECT_EQ(*a->Get("from a", milliseconds(0)), "2");
  EXPECT_TRUE(*a->Has("from a"));
  EXPECT_FALSE(*a->Has("nothing"));
  EXPECT_FALSE(*server_->Has("nothing"));
}

TEST_F(StoreTest, GetWaitsForTheKeyWhoeverSetsIt) {
  for (bool by_server : {true, false}) {
    const std::string key = by_server ? "server's" : "client's";
    auto waiter = Connect(), setter = Connect();
    std::thread later([&] {
      std::this_thread::sleep_for(milliseconds(30));
      EXPECT_TRUE(by_server ? server_->Set(key, "v") : setter->Set(key, "v"));
    });
    auto value = waiter->Get(key, milliseconds(20'000));
    later.join();
    ASSERT_TRUE(value) << value.error().message;
    EXPECT_EQ(*value, "v");
  }
}

TEST_F(StoreTest, TheServersOwnGetWaitsForAClient) {
  auto setter = Connect();
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_TRUE(setter->Set("key", "v"));
  });
  EXPECT_EQ(*server_->Get("key", milliseconds(20'000)), "v");
  later.join();
}

TEST_F(StoreTest, GetGivesUpAfterItsTimeoutAndNamesTheKey) {
  auto client = Connect();
  for (Store* store : {client.get(), static_cast<Store*>(server_.get())}) {
    const auto start = Clock::now();
    auto value = store->Get("never set", milliseconds(50));
    EXPECT_GE(Clock::now() - start, milliseconds(50));
    ASSERT_FALSE(value);
    EXPECT_EQ(value.error().kind, ErrorKind::kFailed);
    EXPECT_NE(value.error().message.find("'never set'"), std::string::npos) << value.error().message;
  }
  // The connection still works.
  EXPECT_TRUE(client->Set("key", "v"));
}

TEST_F(StoreTest, GetAllReturnsValuesInTheOrderOfTheirNumbers) {
  auto store = Connect();
  std::thread others([&] {
    EXPECT_TRUE(server_->Set("said/1", "b"));
    EXPECT_TRUE(server_->Set("said/0", "a"));
  });
  EXPECT_EQ(GetAll(*store, "said/", 2, milliseconds(20'000)).value(), (std::vector<std::string>{"a", "b"}));
  others.join();
}

// Every value comes within 300 ms of the one before, but the last long after that.
TEST_F(StoreTest, GetAllWaitsForAllOfThemTogether) {
  auto store = Connect();
  std::thread others([&] {
    for (int i = 0; i < 10; ++i) {
      std::this_thread::sleep_for(milliseconds(100));
      EXPECT_TRUE(server_->Set("said/" + std::to_string(i), ""));
    }
  });
  const auto all = GetAll(*store, "said/", 10, milliseconds(300));
  others.join();
  ASSERT_FALSE(all);
  EXPECT_NE(all.error().message.find("said/"), std::string::npos) << all.error().message;
}

TEST_F(StoreTest, CountersLoseNoIncrement) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      auto store = Connect();
      for (int n = 0; n < 100; ++n) EXPECT_TRUE(store->Add("counter", 1));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*server_->Add("counter", -10), 390);
  EXPECT_EQ(*Connect()->Get("counter", milliseconds(0)), "390");
}

TEST_F(StoreTest, AWaitForACountEndsWhenTheCounterReachesIt) {
  auto waiter = Connect(), adder = Connect();
  for (Store* waits : {waiter.get(), static_cast<Store*>(server_.get())}) {
    for (Store* adds : {adder.get(), static_cast<Store*>(server_.get())}) {
      const int64_t before = *server_->Add("arrived", 0);
      EXPECT_FALSE(waits->WaitForCount("arrived", before + 2, milliseconds(0)));
      std::thread later([&] {
        for (int i = 0; i < 2; ++i) {
          std::this_thread::sleep_for(milliseconds(20));
          EXPECT_TRUE(adds->Add("arrived", 1));
        }
      });
      const Status reached = waits->WaitForCount("arrived", before + 2, milliseconds(20'000));
      EXPECT_TRUE(reached) << reached.error().message;
      EXPECT_GE(*server_->Add("arrived", 0), before + 2);
      later.join();
      EXPECT_TRUE(waits->WaitForCount("arrived", before + 1, milliseconds(0)));  // beyond it as well
    }
  }
}

TEST_F(StoreTest, AWaitForACountGivesUpAfterItsTimeoutAndNamesTheKey) {
  auto client = Connect();
  ASSERT_TRUE(server_->Set("text", "12 apples"));
  for (Store* store : {client.get(), static_cast<Store*>(server_.get())}) {
    const auto start = Clock::now();
    const Status late = store->WaitForCount("never", 1, milliseconds(50));
    EXPECT_GE(Clock::now() - start, milliseconds(50));
    ASSERT_FALSE(late);
    EXPECT_NE(late.error().message.find("'never'"), std::string::npos) << late.error().message;
    EXPECT_FALSE(*store->Has("never"));
    const Status no_counter = store->WaitForCount("text", 1, milliseconds(20'000));
    ASSERT_FALSE(no_counter);
    EXPECT_NE(no_counter.error().message.find("not a counter"), std::string::npos)
        << no_counter.error().message;
  }
}

TEST_F(StoreTest, AddToWhatIsNoNumberIsAnError) {
  ASSERT_TRUE(server_->Set("text", "12 apples"));
  EXPECT_FALSE(Connect()->Add("text", 1));
  EXPECT_FALSE(server_->Add("text", 1));
}

TEST_F(StoreTest, CarriesLargeValues) {
  std::string large(20 << 20, '\0');
  RandomStream random(1, 1);
  for (char& byte : large) byte = static_cast<char>(random.Next());
  ASSERT_TRUE(Connect()->Set("large", large));
  EXPECT_TRUE(*Connect()->Get("large", milliseconds(20'000)) == large);
}

TEST_F(StoreTest, RefusesKeysBeyondTheBound) {
  auto store = Connect();
  EXPECT_TRUE(store->Set(std::string(kStoreMaxKey, 'k'), "v"));
  EXPECT_FALSE(store->Set(std::string(kStoreMaxKey + 1, 'k'), "v"));
  EXPECT_FALSE(server_->Set(std::string(kStoreMaxKey + 1, 'k'), "v"));
}

TEST_F(StoreTest, DropsAPeerWithoutTheToken) {
  for (const char* token : {"", "wrong", "secre", "secret "}) {
    auto store = ConnectStore("127.0.0.1", server_->port(), token, milliseconds(20'000));
    ASSERT_FALSE(store) << token;
    EXPECT_NE(store.error().message.find("refused"), std::string::npos) << store.error().message;
  }
  ExpectServes();
}

TEST_F(StoreTest, SurvivesGarbageBeforeAndAfterTheToken) {
  RandomStream random(7, 0);
  for (int round = 0; round < 200; ++round) {
    FileDescriptor socket = ConnectRaw();
    std::string bytes;
    if (round % 2 == 1) {  // a proper hello first
      StoreHello hello = {};
      std::memcpy(hello.magic, kStoreMagic, sizeof hello.magic);
      hello.token_bytes = 6;
      bytes.assign(reinterpret_cast<const char*>(&hello), sizeof hello);
      bytes += "secret";
    }
    const uint64_t length = random.Below(3000);
    for (uint64_t i = 0; i < length; ++i) bytes += static_cast<char>(random.Next());
    [[maybe_unused]] Status sent =
        SendAll(socket.get(), bytes.data(), bytes.size(), Clock::now() + milliseconds(1000), "server");
  }
  ExpectServes();
}

TEST_F(StoreTest, DropsARequestBeyondItsBounds) {
  FileDescriptor socket = ConnectWelcome();
  const auto deadline = Clock::now() + milliseconds(20'000);
  StoreRequest request = {StoreOperation::kSet, 3, uint64_t{1} << 62, 0};
  ASSERT_TRUE(SendAll(socket.get(), &request, sizeof request, deadline, "server"));
  char byte = 0;
  EXPECT_FALSE(ReceiveAll(socket.get(), &byte, 1, deadline, "server"));  // the end of the connection
  ExpectServes();
}

// Else the replies to a peer that asks and does not read would fill the server's memory.
TEST_F(StoreTest, ARequestIsHandledOnceTheReplyBeforeItHasBeenTaken) {
  const std::string large(64 << 20, 'x');  // more than the buffers of a connection hold
  ASSERT_TRUE(server_->Set("large", large));
  FileDescriptor socket = ConnectWelcome();
  const auto deadline = Clock::now() + milliseconds(20'000);
  const StoreRequest get = {StoreOperation::kGet, 5, 0, 0}, add = {StoreOperation::kAdd, 7, 0, 3};
  std::string both(reinterpret_cast<const char*>(&get), sizeof get);
  both += "large";
  both.append(reinterpret_cast<const char*>(&add), sizeof add);
  both += "counter";
  ASSERT_TRUE(SendAll(socket.get(), both.data(), both.size(), deadline, "server"));
  for (int i = 0; i < 3; ++i) ExpectServes();  // the server has read the requests
  EXPECT_FALSE(*server_->Has("counter"));
  StoreReply reply = {};
  std::string value(large.size(), '\0');
  ASSERT_TRUE(ReceiveAll(socket.get(), &reply, sizeof reply, deadline, "server"));
  ASSERT_EQ(reply.value_bytes, large.size());
  ASSERT_TRUE(ReceiveAll(socket.get(), value.data(), value.size(), deadline, "server"));
  EXPECT_TRUE(value == large);
  ASSERT_TRUE(ReceiveAll(socket.get(), &reply, sizeof reply, deadline, "server"));
  EXPECT_EQ(reply.number, 3);
}

// poll() fails for more descriptors than the limit.
TEST_F(StoreTest, SaysWhyItHasEnded) {
  FileDescriptor socket = ConnectWelcome();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit two = {2, before.rlim_max};
  testing::internal::CaptureStderr();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &two), 0);
  ASSERT_TRUE(server_->Set("key", "value"));  // wakes it
  char byte = 0;
  const Status received = ReceiveAll(socket.get(), &byte, 1, Clock::now() + milliseconds(20'000), "server");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "windtunnel: the job's store has ended: poll: Invalid argument\n");
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().message, "server closed the connection");
}

TEST_F(StoreTest, SurvivesClientsThatDieWhileTheyWait) {
  for (int round = 0; round < 5; ++round) {
    auto doomed = Connect();
    std::thread waits([&] { (void)doomed->Get("never", milliseconds(30)); });
    waits.join();
  }
  const pid_t child = fork();
  if (child == 0) {
    auto store = ConnectStore("127.0.0.1", server_->port(), "secret", milliseconds(20'000));
    (void)(*store)->Set("child waits", "");
    (void)(*store)->Get("never", milliseconds(60'000));
    _exit(0);
  }
  EXPECT_TRUE(server_->Get("child waits", milliseconds(20'000)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ExpectServes();
}

TEST_F(StoreTest, WhatAConnectionLeavesIsSetInOrderWhenItEnds) {
  auto waits = Connect();
  auto client = Connect();
  ASSERT_TRUE(client->Bequeath("first", "1"));
  ASSERT_TRUE(client->Bequeath("second", "2"));
  EXPECT_FALSE(*waits->Has("first"));
  std::thread ends([&] { client.reset(); });
  EXPECT_EQ(waits->Get("second", milliseconds(20'000)).value_or(""), "2");
  EXPECT_EQ(server_->Get("first", milliseconds(0)).value_or(""), "1");
  ends.join();
}

TEST_F(StoreTest, WhatAProcessThatIsKilledLeavesIsSet) {
  const pid_t child = fork();
  if (child == 0) {
    auto store = ConnectStore("127.0.0.1", server_->port(), "secret", milliseconds(20'000));
    if (store && (*store)->Bequeath("will", "mine")) kill(getpid(), SIGKILL);
    _exit(1);
  }
  EXPECT_EQ(server_->Get("will", milliseconds(20'000)).value_or(""), "mine");
  waitpid(child, nullptr, 0);
}

TEST_F(StoreTest, AConnectionLeavesOnlySoMuch) {
  auto client = Connect();
  for (size_t i = 0; i < kStoreMaxBequests; ++i)
    ASSERT_TRUE(client->Bequeath("key " + std::to_string(i), ""));
  EXPECT_FALSE(client->Bequeath("too much", ""));
  EXPECT_FALSE(server_->Bequeath("key", ""));
  ExpectServes();
}

TEST_F(StoreTest, ClientsOfAServerThatEndsGetErrors) {
  auto store = Connect();
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(30));
    server_.reset();
  });
  EXPECT_FALSE(store->Get("never", milliseconds(20'000)));
  ends.join();
  EXPECT_FALSE(store->Set("key", "v"));
}

TEST_F(StoreTest, ATakenPortIsNamed) {
  auto second = ServeStore("127.0.0.1", server_->port(), "secret");
  ASSERT_FALSE(second);
  const std::string expected = fmt::format("port {} on 127.0.0.1 is taken: ", server_->port());
  EXPECT_EQ(second.error().message.substr(0, expected.size()), expected);
}

TEST(ConnectStore, WaitsForTheServerToStart) {
  int port = 0;
  {
    auto probe = ServeStore("127.0.0.1", 0, "secret");
    port = (*probe)->port();
  }
  std::unique_ptr<StoreServer> server;
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    auto started = ServeStore("127.0.0.1", port, "secret");
    if (started) server = std::move(*started);
  });
  auto store = ConnectStore("127.0.0.1", port, "secret", milliseconds(20'000));
  later.join();
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(store) << store.error().message;
}

TEST(ConnectStore, GivesUpAfterItsTimeout) {
  int port = 0;
  {
    auto probe = ServeStore("127.0.0.1", 0, "secret");
    port = (*probe)->port();
  }
  auto store = ConnectStore("127.0.0.1", port, "secret", milliseconds(50));
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message.find(fmt::format("127.0.0.1:{}", port)), std::string::npos)
      << store.error().message;
}

// A peer that sends a little again and again does not make each wait another one.
TEST(Patience, EndsSoonAfterAnInterruptHoweverOftenThePeerSends) {
  int ends[2], interrupt[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  ASSERT_EQ(pipe(interrupt), 0);
  ASSERT_EQ(write(interrupt[1], "x", 1), 1);
  std::thread peer([&] {
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(send(ends[1], "x", 1, MSG_NOSIGNAL), 1);
      std::this_thread::sleep_for(milliseconds(300));
    }
  });
  Patience patience(Clock::now() + milliseconds(20'000), interrupt[0]);
  char bytes[5];
  EXPECT_FALSE(ReceiveAll(ends[0], bytes, sizeof bytes, patience, "peer"));  // after 0.5 s of 1.2 s
  peer.join();
  for (const int descriptor : {ends[0], ends[1], interrupt[0], interrupt[1]}) close(descriptor);
}

}  // namespace
}  // namespace windtunnel
