#include "cli/machine_room.h"

#include <gtest/gtest.h>

#include "sim/role_memory.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// The ranks of a node of two: what a rank takes, to the byte, twice.
TEST(CheckRoomFor, CountsThePeaksOfTheNodesRanks) {
  Scenario s = TinyGpt(4);
  s.cluster.nodes = 2;
  s.cluster.devices_per_node = 2;
  const Plan plan = *CompilePlan(s);
  const RoleMemory memory = *SimulateMemory(plan.roles[0]);
  const Bytes needed = std::max(memory.initial_peak, memory.steady.reserved) * 2;
  for (const int64_t node : {0, 1}) {
    EXPECT_TRUE(CheckRoomFor(plan, node, needed));
    const Status refused = CheckRoomFor(plan, node, needed - Bytes(1));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::kFailed);
    EXPECT_EQ(refused.error().message.rfind("tiny-gpt: needs ", 0), 0u) << refused.error().message;
    EXPECT_NE(refused.error().message.find(" (2 ranks, at most "), std::string::npos);
  }
}

TEST(CheckRoomFor, LeavesDevicesWithMemoryOfTheirOwnAlone) {
  Scenario s = TinyGpt();
  s.cluster.device = "h100-sxm-80g";
  EXPECT_TRUE(CheckRoomFor(*CompilePlan(s), 0, Bytes(1)));
}

}  // namespace
}  // namespace windtunnel
