#include "sim/step_schedule.h"

#include <gtest/gtest.h>

#include "tests/sim/fixtures.h"

namespace windtunnel {
namespace {

using testing::kOther;
using testing::PlanBuilder;

// The role's actions as text: "work 2" (items), "issue q0[0]", "wait q0[0]".
std::vector<std::string> ActionsOf(const StepSchedule& schedule, int role) {
  std::vector<std::string> lines;
  for (const HostAction& action : schedule.roles[role].actions) {
    if (action.kind == HostAction::Kind::kWork)
      lines.push_back(fmt::format("work {}", action.second - action.first));
    if (action.kind == HostAction::Kind::kIssue)
      lines.push_back(fmt::format("issue q{}[{}]", action.first, action.second));
    if (action.kind == HostAction::Kind::kWait)
      lines.push_back(fmt::format("wait q{}[{}]", action.first, action.second));
  }
  return lines;
}

TEST(StepSchedule, JoinsAllWorkBetweenTwoPointsOfCommunication) {
  PlanBuilder b(2);
  b.Kernel("a", 1);
  b.Kernel("b", 1);
  const OpIndex sum = b.Collective("sum", 1);
  b.Kernel("c", 1, {sum});
  const Plan plan = b.Build();
  // a and b with their dispatch, and the dispatch of the collective; then c's dispatch, and c itself.
  EXPECT_EQ(ActionsOf(MakeStepSchedule(plan).value(), 0),
            (std::vector<std::string>{"work 5", "issue q0[0]", "work 1", "wait q0[0]", "work 1"}));
}

TEST(StepSchedule, WaitsOncePerStreamForWhatIsAlreadyKnownToBeDone) {
  PlanBuilder b(2);
  const OpIndex first = b.Collective("first", 1);
  const OpIndex second = b.Collective("second", 1);
  b.Kernel("a", 1, {second});
  b.Kernel("b", 1, {first, second});
  const Plan plan = b.Build();
  EXPECT_EQ(ActionsOf(MakeStepSchedule(plan).value(), 0),
            (std::vector<std::string>{"work 1", "issue q0[0]", "work 1", "issue q0[1]", "work 1",
                                      "wait q0[1]", "work 3"}));
}

TEST(StepSchedule, NeedsNoWaitForComputation) {
  PlanBuilder b(2);
  const OpIndex ready = b.Kernel("a", 1);
  b.Collective("sum", 1, {ready});
  const Plan plan = b.Build();
  EXPECT_EQ(ActionsOf(MakeStepSchedule(plan).value(), 0),
            (std::vector<std::string>{"work 3", "issue q0[0]"}));
}

TEST(StepSchedule, MatchesTheKthCollectiveOfAGroupOnEveryRank) {
  PlanBuilder b(3);
  b.Collective("x", 1);
  b.Collective("other x", 2, {}, kOther);
  b.Collective("y", 3);
  const Plan plan = b.Build();
  const StepSchedule schedule = MakeStepSchedule(plan).value();
  ASSERT_EQ(schedule.transfers.size(), 3u);
  for (const Transfer& transfer : schedule.transfers) {
    EXPECT_EQ(transfer.needed, 3);
    EXPECT_EQ(transfer.participants, 3);
    const OpIndex op = schedule.participants[transfer.first_participant].op;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(schedule.participants[transfer.first_participant + i].rank, i);
      EXPECT_EQ(schedule.participants[transfer.first_participant + i].op, op);
    }
  }
}

TEST(StepSchedule, MatchesTheKthSendWithTheKthReceive) {
  PlanBuilder b(3);
  b.BeginRole({0});
  b.SendTo(2, "first", 1);
  b.SendTo(1, "to 1", 2);
  b.SendTo(2, "second", 3);
  b.BeginRole({1});
  b.ReceiveFrom(0, "from 0", 2);
  b.BeginRole({2});
  b.ReceiveFrom(0, "first", 1);
  b.ReceiveFrom(0, "second", 3);
  const Plan plan = b.Build();
  const StepSchedule schedule = MakeStepSchedule(plan).value();
  ASSERT_EQ(schedule.transfers.size(), 3u);
  for (const Transfer& transfer : schedule.transfers) EXPECT_EQ(transfer.participants, 2);
}

TEST(StepSchedule, CollectivesThatMeetMustAgree) {
  PlanBuilder b(2);
  b.BeginRole({0});
  b.Collective("bucket 0", 4);
  b.BeginRole({1});
  b.Collective("bucket 1", 8);
  const Plan plan = b.Build();
  const auto schedule = MakeStepSchedule(plan);
  ASSERT_FALSE(schedule);
  EXPECT_EQ(schedule.error().message,
            "rank 0 calls 'bucket 0' (all_reduce fp32 bytes=16) where rank 1 calls 'bucket 1' (all_reduce "
            "fp32 bytes=32): "
            "operators that meet must agree");
}

// As live ranks do: not only on what a transfer costs.
TEST(StepSchedule, CollectivesThatMeetMustReduceAlikeAndGoEquallyFar) {
  for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kShift}) {
    PlanBuilder b(3);
    for (int rank = 0; rank < 3; ++rank) {
      b.BeginRole({rank});
      b.Collective("sum", 4);
    }
    Plan plan = b.Build();
    for (Role& role : plan.roles) std::get<Collective>(role.steady.ops[0].kind).kind = kind;
    ASSERT_TRUE(MakeStepSchedule(plan));
    Collective& other = std::get<Collective>(plan.roles[1].steady.ops[0].kind);
    if (kind == CollectiveKind::kShift) other.distance = 2;
    else other.reduction = Reduction::kMax;
    EXPECT_FALSE(MakeStepSchedule(plan));
  }
}

}  // namespace
}  // namespace windtunnel
