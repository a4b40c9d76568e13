// The generated schedules, what they refuse, and the communication that is derived from them.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "plan/schedule.h"
#include "plan/schedule_check.h"
#include "plan/schedule_csv.h"
#include "plan/schedule_order.h"
#include "plan/schedules/generators.h"

namespace windtunnel {
namespace {

std::string Made(const std::string& name, int ranks, int virtual_stages, int64_t micro_batches) {
  const auto schedule = MakeSchedule(name, ranks, virtual_stages, micro_batches);
  return schedule ? PrintScheduleCsv(*schedule) : schedule.error().message;
}

TEST(MakeSchedule, NoneRunsMicroBatchesOneAfterTheOther) {
  EXPECT_EQ(Made("none", 2, 1, 2), "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
}

TEST(MakeSchedule, GPipeRunsAllForwardsFirst) {
  EXPECT_EQ(Made("gpipe", 2, 1, 2), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
}

TEST(MakeSchedule, OneForwardOneBackwardWarmsUpByTheRanksAfterIt) {
  EXPECT_EQ(Made("1f1b", 3, 1, 4),
            "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n"
            "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n"
            "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\n");
}

// g = 2; rank 0 runs (2-1) 2 + 2 (2-1-0) = 4 forwards ahead, rank 1 runs 2.
TEST(MakeSchedule, InterleavedIsDepthFirst) {
  EXPECT_EQ(Made("interleaved", 2, 2, 4),
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
}

// Megatron with group = p takes a last group of m mod group micro-batches; torch has rounds of equal size: 6
// = 2 rounds of 3.
TEST(Interleaved, TakesMegatronsGroupsAndTorchsRounds) {
  const auto forwards_of_rank_0 = [](const Schedule& schedule) {
    std::string text;
    for (const Action& action : schedule.ranks[0]) {
      if (action.kind == ActionKind::kForward) text += FormatAction(action) + " ";
    }
    return text;
  };
  EXPECT_EQ(forwards_of_rank_0(schedules::Interleaved(2, 2, 5, 3)),
            "0F0 0F1 0F2 2F0 2F1 2F2 0F3 0F4 2F3 2F4 ");
  EXPECT_EQ(forwards_of_rank_0(*MakeSchedule("interleaved", 4, 2, 10)),
            "0F0 0F1 0F2 0F3 0F4 4F0 4F1 4F2 4F3 4F4 0F5 0F6 0F7 0F8 0F9 4F5 4F6 4F7 4F8 4F9 ");
  EXPECT_FALSE(FindScheduleFault(schedules::Interleaved(2, 2, 5, 3)));
}

TEST(MakeSchedule, LoopedBreadthFirstRunsBackwardInReverse) {
  EXPECT_EQ(Made("looped_bfs", 2, 2, 2),
            "0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0\n"
            "1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0\n");
}

TEST(MakeSchedule, ZeroBubbleH1PutsWeightGradientsOffByTheRank) {
  EXPECT_EQ(Made("zb_h1", 2, 1, 3),
            "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\n"
            "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\n");
}

// torch's ZBVZeroBubble, p = 2: rank 0 warms up with 2 (2-0) - 1 = 3 forwards of its first stage.
TEST(MakeSchedule, ZeroBubbleVGoesDownAndUp) {
  EXPECT_EQ(Made("zb_v", 2, 2, 3),
            "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,3W2,0I1,0W1,0I2,0W2\n"
            "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1I1,2I2,1I2,1W1,2W2,1W2\n");
}

// DeepSeek's eight phases, p = 2, m = 4; a pair that overlaps stands as forward, backward.
TEST(MakeSchedule, DualPipeVFollowsItsPhases) {
  EXPECT_EQ(Made("dualpipe_v", 2, 2, 4),
            "0F0,0F1,0F2,3F0,3I0,3W0,3F1,0F3,3B1,3F2,0B0,3B2,3F3,0B1,3B3,0I2,0W2,0I3,0W3\n"
            "1F0,2F0,1F1,2F1,1F2,2B0,2F2,1B0,1F3,2B1,2F3,1B1,2B2,1B2,2I3,1I3,2W3,1W3\n");
}

std::string Pairs(const Schedule& schedule, int rank) {
  std::string text;
  const std::vector<Action>& actions = schedule.ranks[rank];
  for (size_t i = 0; i < actions.size(); ++i) {
    if (!schedule.paired.contains(actions[i])) continue;
    text += FormatAction(actions[i]) + "+" + FormatAction(actions[i + 1]) + " ";
  }
  return text;
}

// One forward more ahead than above: five on rank 0, three on rank 1.
TEST(MakePairedSchedule, InterleavedRunsOneForwardMoreAhead) {
  const auto schedule = MakePairedSchedule("interleaved", 2, 2, 4);
  ASSERT_TRUE(schedule);
  EXPECT_EQ(PrintScheduleCsv(*schedule),
            "0F0,0F1,2F0,2F1,0F2,0F3,2B0,2F2,2B1,2F3,0B0,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3F1,3B0,1F2,3B1,1F3,1B0,3F2,1B1,3F3,3B2,3B3,1B2,1B3\n");
  EXPECT_EQ(Pairs(*schedule, 0), "0F3+2B0 2F2+2B1 2F3+0B0 ");
  EXPECT_EQ(Pairs(*schedule, 1), "3F1+3B0 1F2+3B1 1F3+1B0 3F2+1B1 3F3+3B2 ");
}

// As in torch: all pairs of the steady state except the last rank's first one, for whose gradient the stages
// before wait.
TEST(MakePairedSchedule, DualPipeVHasItsOwn) {
  const auto schedule = MakePairedSchedule("dualpipe_v", 2, 2, 4);
  ASSERT_TRUE(schedule);
  EXPECT_EQ(PrintScheduleCsv(*schedule), Made("dualpipe_v", 2, 2, 4));
  EXPECT_EQ(Pairs(*schedule, 0), "0F3+3B1 3F2+0B0 3F3+0B1 ");
  EXPECT_EQ(Pairs(*schedule, 1), "2F2+1B0 1F3+2B1 2F3+1B1 ");
}

TEST(MakePairedSchedule, AreOfTwoMicroBatchesAndCannotDeadlock) {
  int made = 0;
  for (const char* name : {"interleaved", "dualpipe_v"}) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      for (int virtual_stages : {2, 3}) {
        for (int64_t micro_batches = 1; micro_batches <= 24; ++micro_batches) {
          const auto schedule = MakePairedSchedule(name, ranks, virtual_stages, micro_batches);
          if (!schedule) continue;
          ++made;
          const Schedule lowered = AddCommunication(*schedule);
          const auto fault = FindScheduleFault(lowered);
          ASSERT_FALSE(fault) << fault->what;
          for (const std::vector<Action>& actions : lowered.ranks) {
            for (size_t i = 0; i < actions.size(); ++i) {
              if (!lowered.paired.contains(actions[i])) continue;
              ASSERT_EQ(actions[i].kind, ActionKind::kForward);
              ASSERT_EQ(actions[i + 1].kind, ActionKind::kBackward);
              ASSERT_NE(actions[i].micro_batch, actions[i + 1].micro_batch);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(made, 150);
}

TEST(MakePairedSchedule, RefusesThoseWithoutPairs) {
  const auto schedule = MakePairedSchedule("1f1b", 2, 1, 4);
  ASSERT_FALSE(schedule);
  EXPECT_EQ(
      schedule.error().message,
      "pipeline schedule 1f1b: a rank's forwards and backwards do not go in pairs of two micro-batches, "
      "expected interleaved or dualpipe_v");
}

TEST(MakeSchedule, SaysWhatItAccepts) {
  EXPECT_EQ(Made("1f1b", 4, 1, 3),
            "pipeline schedule 1f1b needs at least as many micro-batches as pipeline ranks, 4, but there are "
            "3 (batch.accumulate)");
  EXPECT_EQ(Made("dualpipe_v", 4, 2, 7),
            "pipeline schedule dualpipe_v needs at least two micro-batches per pipeline rank, 8, but there "
            "are 7 (batch.accumulate)");
  EXPECT_NE(Made("interleaved", 4, 2, 9)
                .find("need to be a multiple of 2: 8 and every multiple of the 4 ranks will do"),
            std::string::npos);
  EXPECT_EQ(Made("gpipe", 4, 2, 8),
            "pipeline schedule gpipe has one stage per rank, but virtual_stages is 2");
  EXPECT_EQ(Made("zb_v", 4, 3, 8),
            "pipeline schedule zb_v has exactly two stages per rank, but virtual_stages is 3");
  EXPECT_EQ(Made("interleaved", 4, 1, 8),
            "pipeline schedule interleaved has two or more stages per rank, but virtual_stages is 1");
  EXPECT_EQ(Made("2f2b", 4, 1, 8),
            "pipeline schedule 2f2b: not known; expected one of none, gpipe, 1f1b, interleaved, looped_bfs, "
            "zb_h1, zb_v, dualpipe_v");
  EXPECT_EQ(Made("gpipe", 1, 1, 8),
            "pipeline schedule gpipe: needs two or more pipeline ranks, but there is 1");
  EXPECT_EQ(Made("none", 2, 1, 0), "pipeline schedule none: needs one or more micro-batches");
}

TEST(AddCommunication, PutsASendAfterAndAReceiveBefore) {
  EXPECT_EQ(PrintScheduleCsv(AddCommunication(*MakeSchedule("gpipe", 2, 1, 2))),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
}

TEST(AddCommunication, LeavesNeighboursOnOneRankAlone) {
  // Stages 1 and 2 are both on rank 1 of a V, so only hops 0-1 and 2-3 are messages: 2 hops x 2 directions x
  // 5 micro-batches.
  const Schedule lowered = AddCommunication(*MakeSchedule("zb_v", 2, 2, 5));
  int sends = 0;
  for (const auto& actions : lowered.ranks) {
    for (const Action& action : actions) sends += IsSend(action.kind);
  }
  EXPECT_EQ(sends, 20);
}

TEST(AddCommunication, CannotDeadlockEvenWhenSendsBlock) {
  for (const std::string& name : ScheduleNames()) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      for (int64_t micro_batches = 1; micro_batches <= 20; ++micro_batches) {
        auto schedule = MakeSchedule(name, ranks, 1, micro_batches);
        if (!schedule) schedule = MakeSchedule(name, ranks, 2, micro_batches);
        if (!schedule) continue;
        const auto fault = FindScheduleFault(AddCommunication(*schedule));
        ASSERT_FALSE(fault) << fault->what;
      }
    }
  }
}

// Whether the action can run: what it sends has been made, or its input has come from another rank.
bool IsReady(const Schedule& schedule, const std::set<Action>& done, const Action& action) {
  const auto has = [&](ActionKind kind, int stage) {
    return done.contains({kind, stage, action.micro_batch});
  };
  const auto has_come = [&](ActionKind message, int from) {
    const bool crosses = from >= 0 && from < schedule.stages() &&
                         schedule.rank_of_stage[from] != schedule.rank_of_stage[action.stage];
    return !crosses || has(message, from);
  };
  switch (action.kind) {
    case ActionKind::kSendActivation:
      return has(ActionKind::kForward, action.stage);
    case ActionKind::kSendGradient:
      return has(ActionKind::kBackward, action.stage) || has(ActionKind::kInputGradient, action.stage);
    case ActionKind::kForward:
      return has_come(ActionKind::kSendActivation, action.stage - 1);
    case ActionKind::kBackward:
    case ActionKind::kInputGradient:
      return has_come(ActionKind::kSendGradient, action.stage + 1);
    default:
      return true;
  }
}

TEST(InOneOrder, PutsFirstWhatIsNeededFirst) {
  for (const std::string& name : ScheduleNames()) {
    for (int virtual_stages : {1, 2}) {
      const auto schedule = MakeSchedule(name, 3, virtual_stages, 6);
      if (!schedule) continue;
      std::set<Action> done;
      std::vector<std::vector<Action>> of_ranks(3);
      for (const ScheduleEvent& event : InOneOrder(*schedule)) {
        EXPECT_TRUE(IsReady(*schedule, done, event.action)) << name << ": " << FormatAction(event.action);
        EXPECT_TRUE(done.insert(event.action).second) << name << ": twice " << FormatAction(event.action);
        if (!IsSend(event.action.kind)) of_ranks[event.rank].push_back(event.action);
      }
      EXPECT_EQ(of_ranks, schedule->ranks) << name;
    }
  }
}

TEST(Placement, LoopsOrTurnsBack) {
  EXPECT_EQ(LoopPlacement(3, 2), (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(VPlacement(3), (std::vector<int>{0, 1, 2, 2, 1, 0}));
}

}  // namespace
}  // namespace windtunnel
