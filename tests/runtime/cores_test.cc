// Which cores ranks may use, and which ranks share cores.
#include "runtime/cores.h"

#include <gtest/gtest.h>

#include <thread>

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
