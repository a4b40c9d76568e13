#include "runtime/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/in_process_ranks.h"

namespace windtunnel {
namespace {

std::vector<CalibrationSamples> CalibrateRanks(const Plan& plan) {
  std::vector<CalibrationSamples> samples(plan.world_size);
  WithRanks(plan, [&](RankSession& session, Store& store) -> Status {
    for (int step = 0; step < 3; ++step) WT_RETURN_IF_ERROR(session.Step());
    const CalibrationOptions options{.rounds = 2, .seconds = 0.2};
    WT_ASSIGN_OR_RETURN(samples[session.rank()], MeasureCosts(session, store, options));
    return Ok();
  });
  return samples;
}

TEST(MeasureCosts, HasEveryOperatorOfTheSteadyStep) {
  const Plan plan = *CompilePlan(TinyGpt(2));
  const auto samples = CalibrateRanks(plan);
  for (const Op& op : plan.roles[0].steady.ops) {
    if (IsCommunication(op.kind)) continue;
    for (const auto& of_rank : samples) EXPECT_TRUE(of_rank.kernels.count(CostKey(op))) << CostKey(op);
  }
}

TEST(MeasureCosts, MeasuresEachCollectiveAloneAndUnderComputation) {
  Scenario s = TinyGpt(2);
  s.parallel.data.bucket_cap_mb = 0.02;
  const Plan plan = *CompilePlan(s);
  const auto samples = CalibrateRanks(plan);
  std::set<std::string> seen;
  for (const CollectiveSamples& collective : samples[0].collectives) {
    seen.insert(collective.op);
    EXPECT_EQ(collective.ranks, 2);
    EXPECT_GE(collective.done.size(), 10u);
    EXPECT_EQ(collective.arrived.size(), collective.done.size());
    EXPECT_EQ(collective.op == "barrier", collective.overlap_done.empty());
    for (size_t i = 0; i < collective.done.size(); ++i) EXPECT_LT(collective.arrived[i], collective.done[i]);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"all_reduce", "barrier"}));
}

// Each rank has its role's operators: only device 0 loads, computes the loss and updates.
TEST(MeasureCosts, HasTheOperatorsOfDataParallelsRoles) {
  const Plan plan = *CompilePlan(Dp(TinyGpt(3)));
  const auto samples = CalibrateRanks(plan);
  std::set<std::string> seen;
  for (int rank = 0; rank < 3; ++rank) {
    for (const Op& op : plan.RoleOf(rank).steady.ops) {
      if (std::holds_alternative<HostWait>(op.kind) || IsCommunication(op.kind)) continue;
      EXPECT_TRUE(samples[rank].kernels.count(CostKey(op))) << CostKey(op) << ", rank " << rank;
    }
    for (const CollectiveSamples& collective : samples[rank].collectives) {
      seen.insert(collective.op);
      EXPECT_EQ(collective.ranks, 3);
      EXPECT_EQ(collective.op == "barrier", collective.overlap_done.empty());
      EXPECT_GE(collective.core_time.size(), 2u);
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"barrier", "broadcast", "gather", "reduce", "scatter"}));
}

// Two groups of two tensor ranks, whose collectives run side by side, and two groups of data-parallel ranks
// across them.
TEST(MeasureCosts, MeasuresTheCollectivesOfEveryAxis) {
  Scenario s = TinyGpt(2);
  s.parallel.tensor = {.size = 2, .sequence = true};
  const Plan plan = *CompilePlan(s);
  const auto samples = CalibrateRanks(plan);
  ASSERT_EQ(samples.size(), 4u);
  const Role& role = plan.roles[0];
  for (const Op& op : role.steady.ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (collective == nullptr) continue;
    const int ranks = plan.axes[role.streams[op.stream].axis].size();
    for (const auto& of_rank : samples) {
      EXPECT_TRUE(std::any_of(of_rank.collectives.begin(), of_rank.collectives.end(), [&](const auto& c) {
        return c.op == Name(collective->kind) && c.bytes == MessageBytes(*collective).count() &&
               c.ranks == ranks;
      })) << CostKey(op);
    }
  }
}

TEST(MeasureCosts, RanksAgreeOnTheRepetitions) {
  const auto samples = CalibrateRanks(*CompilePlan(TinyMlp(3)));
  for (const auto& of_rank : samples) {
    ASSERT_EQ(of_rank.collectives.size(), samples[0].collectives.size());
    EXPECT_EQ(of_rank.dispatch.size(), samples[0].dispatch.size());
    for (size_t i = 0; i < of_rank.collectives.size(); ++i) {
      EXPECT_EQ(of_rank.collectives[i].done.size(), samples[0].collectives[i].done.size());
    }
  }
}

TEST(MeasureCosts, LeavesTheRankAbleToTrainOn) {
  const Plan plan = *CompilePlan(TinyGpt(2));
  WithRanks(plan, [&](RankSession& session, Store& store) -> Status {
    for (int step = 0; step < 3; ++step) WT_RETURN_IF_ERROR(session.Step());
    const Bytes before = session.executor().pool().allocated();
    WT_RETURN_IF_ERROR(MeasureCosts(session, store, {.rounds = 1, .seconds = 0.05}));
    EXPECT_EQ(session.executor().pool().allocated(), before);
    WT_RETURN_IF_ERROR(session.Step());
    return Ok();
  });
}

}  // namespace
}  // namespace windtunnel
