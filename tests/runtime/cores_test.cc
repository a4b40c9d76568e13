// Which cores ranks have, and who of them shares some.
#include "runtime/cores.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/neighbors.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

TEST(Cores, AreSharedWhereMoreRanksMayUseThemThanThereAre) {
  EXPECT_FALSE(SharesCores("1", {"1"}));
  EXPECT_FALSE(SharesCores("1", {"1", "01"}));  // each is bound to one of its own, as mpirun and srun may do
  EXPECT_FALSE(SharesCores("11", {"11", "11"}));  // all may use the same two
  EXPECT_TRUE(SharesCores("11", {"11", "11", "11"}));
  EXPECT_TRUE(SharesCores("1", {"1", "1"}));
  EXPECT_TRUE(SharesCores("1", {"1", "1", "0111"}));  // the third has others
  EXPECT_FALSE(SharesCores("0111", {"1", "1", "0111"}));
  EXPECT_FALSE(SharesCores("", {"", ""}));  // not known
}

TEST(Cores, AsTextAreThoseThatThisProcessMayUse) {
  const std::string text = UsableCoresText();
  EXPECT_EQ(std::count(text.begin(), text.end(), '1'), UsableCores());
}

TEST(Neighbors, HearWhatEachSays) {
  const auto server = ServeStore("127.0.0.1", 0, "token").value();
  std::vector<std::string> heard[2];
  std::thread second([&] {
    const auto store = ConnectStore("127.0.0.1", server->port(), "token", milliseconds(5000)).value();
    heard[1] = TellNeighbors(*store, {1, 2, milliseconds(5000)}, "device", "b").value();
  });
  heard[0] = TellNeighbors(*server, {0, 2, milliseconds(5000)}, "device", "a").value();
  second.join();
  for (const auto& said : heard) EXPECT_EQ(said, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(TellNeighbors(*server, {2, 4, milliseconds(20)}, "device", "c").error().kind, ErrorKind::kFailed);
}

}  // namespace
}  // namespace windtunnel
