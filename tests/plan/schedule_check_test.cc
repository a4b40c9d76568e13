// What the checker of schedules refuses, and its error messages.
#include "plan/schedule_check.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace windtunnel {
namespace {

constexpr ActionKind kF = ActionKind::kForward, kB = ActionKind::kBackward, kI = ActionKind::kInputGradient,
                     kW = ActionKind::kWeightGradient;

// Two ranks, one micro-batch; rank 0 as given, rank 1 forward and backward.
std::string FaultOf(std::vector<Action> rank_0) {
  const auto fault = FindScheduleFault({"own", 1, {0, 1}, {std::move(rank_0), {{kF, 1, 0}, {kB, 1, 0}}}});
  return fault ? fault->what : "none";
}

TEST(FindScheduleFault, AcceptsAWholeOrASplitBackward) {
  EXPECT_EQ(FaultOf({{kF, 0, 0}, {kB, 0, 0}}), "none");
  EXPECT_EQ(FaultOf({{kF, 0, 0}, {kI, 0, 0}, {kW, 0, 0}}), "none");
}

TEST(FindScheduleFault, WantsEachActionExactlyOnceAndInOrder) {
  EXPECT_EQ(FaultOf({{kF, 0, 0}, {kF, 0, 0}}),
            "0F0 (stage 0, forward of micro-batch 0) stands there a second time");
  EXPECT_EQ(FaultOf({{kB, 0, 0}, {kF, 0, 0}}),
            "0B0 (stage 0, backward of micro-batch 0) comes without its forward 0F0 before it");
  EXPECT_EQ(FaultOf({{kF, 0, 0}, {kW, 0, 0}, {kI, 0, 0}}),
            "0W0 (stage 0, weight gradient of micro-batch 0) comes without its input gradient 0I0 before it");
  EXPECT_EQ(FaultOf({{kF, 0, 0}, {kB, 0, 0}, {kI, 0, 0}}),
            "0I0 (stage 0, input gradient of micro-batch 0): this backward is already done; one is either B, "
            "or I and later W");
  EXPECT_EQ(FaultOf({{kF, 0, 0}}), "0B0 (stage 0, backward of micro-batch 0) is missing on rank 0");
  EXPECT_EQ(FaultOf({{kF, 0, 0}, {kI, 0, 0}}),
            "0W0 (stage 0, weight gradient of micro-batch 0) is missing on rank 0");
  EXPECT_EQ(FaultOf({{kF, 2, 0}}), "2F0 (stage 2, forward of micro-batch 0): the stages are 0 to 1");
}

// Rank 0 would receive micro-batch 0's gradient before it sends micro-batch 1, rank 1 the other way round.
TEST(FindScheduleFault, SeesExchangesInOppositeOrders) {
  Schedule schedule = AddCommunication(*MakeSchedule("1f1b", 2, 1, 2));
  EXPECT_FALSE(FindScheduleFault(schedule));
  const Action receive{ActionKind::kReceiveGradient, 0, 0}, send{ActionKind::kSendActivation, 0, 1};
  auto& rank_0 = schedule.ranks[0];
  std::iter_swap(std::find(rank_0.begin(), rank_0.end(), receive),
                 std::find(rank_0.begin(), rank_0.end(), send));
  EXPECT_EQ(FindScheduleFault(schedule)->what,
            "deadlock: rank 0 cannot run 0RECV_B0 (stage 0, receive of the output's "
            "gradient of micro-batch "
            "0) before 1SEND_B0, which rank 1 has not come to; rank 1 cannot run 1RECV_F1 (stage 1, receive "
            "of the input of "
            "micro-batch 1) before 0SEND_F1, which rank 0 has not come to");
}

TEST(FindScheduleFault, RefusesASendToNobody) {
  EXPECT_EQ(
      FaultOf({{ActionKind::kSendGradient, 0, 0}}),
      "0SEND_B0 (stage 0, send of the input's gradient of micro-batch 0): no other rank holds stage -1");
}

TEST(FindScheduleFault, MissesAReceive) {
  Schedule schedule = AddCommunication(*MakeSchedule("gpipe", 2, 1, 2));
  std::erase(schedule.ranks[1], Action{ActionKind::kReceiveActivation, 1, 1});
  EXPECT_EQ(FindScheduleFault(schedule)->what,
            "1RECV_F1 (stage 1, receive of the input of micro-batch 1) is missing");
}

TEST(ActivationsInFlight, CountsUntilTheWeightGradient) {
  EXPECT_EQ(ActivationsInFlight(*MakeSchedule("1f1b", 4, 1, 8)), (std::vector<int64_t>{4, 3, 2, 1}));
  EXPECT_EQ(ActivationsInFlight(*MakeSchedule("zb_h1", 4, 1, 8)), (std::vector<int64_t>{4, 4, 4, 4}));
}

}  // namespace
}  // namespace windtunnel
