#include "cost_models/node_wire.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace windtunnel {
namespace {

NetworkSpec Ethernet(double gbits) {
  NetworkSpec network;
  network.inter_node.kind = "ethernet";
  network.inter_node.gbits_per_nic = gbits;
  return network;
}

TEST(NodeWire, RepeatsTheWorkedNumber) {
  // 2 (2 - 1) / 2 x 21 MB = 21 MB at 125 MB/s x 1448 / 1538 = 117.685 MB/s: 178.44 ms.
  const Duration time = WireTime({"all_reduce", Bytes(21'000'000)}, 2, 2, Ethernet(1));
  EXPECT_NEAR(ToSeconds(time), 0.17844, 1e-5);
}

TEST(NodeWire, CountsWhatARankSends) {
  const NetworkSpec network = Ethernet(8 * 1538.0 / 1448);  // 1 GB/s of payload
  const Bytes bytes(4'000'000);
  EXPECT_NEAR(ToSeconds(WireTime({"all_reduce", bytes}, 4, 4, network)), 2 * 3.0 / 4 * 4e-3, 1e-9);
  EXPECT_NEAR(ToSeconds(WireTime({"all_gather", bytes}, 4, 4, network)), 3.0 / 4 * 4e-3, 1e-9);
  EXPECT_NEAR(ToSeconds(WireTime({"reduce_scatter", bytes}, 4, 4, network)), 3.0 / 4 * 4e-3, 1e-9);
  EXPECT_NEAR(ToSeconds(WireTime({"send", bytes}, 2, 2, network)), 4e-3, 1e-9);
  EXPECT_EQ(WireTime({"barrier", Bytes(0)}, 4, 4, network), Duration());
}

// What a node's ranks send each other does not cross its link.
TEST(NodeWire, CountsWhatCrossesTheLinkInAnAllToAll) {
  const NetworkSpec network = Ethernet(8 * 1538.0 / 1448);
  const TransferKey transfer = {"all_to_all", Bytes(4'000'000)};
  EXPECT_NEAR(ToSeconds(WireTime(transfer, 4, 4, network)), 3.0 / 4 * 4e-3, 1e-9);
  EXPECT_NEAR(ToSeconds(WireTime(transfer, 4, 2, network)), 2.0 * 2 / 4 * 4e-3, 1e-9);
  EXPECT_NEAR(ToSeconds(WireTime(transfer, 16, 2, network)), 8.0 * 8 / 16 * 4e-3, 1e-9);
}

// Each of the other ranks is sent the share of tokens that have experts there.
TEST(NodeWire, CountsWhereTokensGo) {
  Collective exchange{CollectiveKind::kTokenExchange, DType::kBFloat16, 1024};
  exchange.reach = {.rank = 0.25, .node = 1};
  EXPECT_DOUBLE_EQ(SentShare(exchange, 8), 7 * 0.25);
  EXPECT_DOUBLE_EQ(SentShare(Collective{CollectiveKind::kAllToAll, DType::kBFloat16, 1024}, 8), 7.0 / 8);
}

TEST(NodeWire, ANetworkThatNamesNoRateHasNoTime) {
  EXPECT_EQ(WireTime({"send", Bytes(1'000'000)}, 2, 2, NetworkSpec()), Duration());
}

RC_GTEST_PROP(NodeWire, IsMonotoneInBytesAndFallsWithTheRate, ()) {
  const auto bytes = *rc::gen::inRange<int64_t>(0, 1'000'000'000);
  const int ranks = *rc::gen::inRange(2, 64);
  const double gbits = *rc::gen::inRange(1, 400);
  const Duration time = WireTime({"all_reduce", Bytes(bytes)}, ranks, ranks, Ethernet(gbits));
  RC_ASSERT(WireTime({"all_reduce", Bytes(bytes + 1'000)}, ranks, ranks, Ethernet(gbits)) > time);
  RC_ASSERT(WireTime({"all_reduce", Bytes(bytes)}, ranks, ranks, Ethernet(gbits + 1)) <= time);
}

}  // namespace
}  // namespace windtunnel
