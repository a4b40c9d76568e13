// Properties of every generated schedule: the bubble is that of the formula where one holds and always that
// of the longest path, and the activations in flight are the promised number.
#include "plan/schedule_bubble.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/topological_sort.hpp>
#include <iterator>
#include <map>
#include <tuple>

#include "plan/schedule_check.h"

namespace windtunnel {
namespace {

using Graph = boost::compressed_sparse_row_graph<boost::directedS>;

// One micro-batch, F = 1, B = 2, messages of 0.5:   0F0 0-1, 1F0 1.5-2.5, 1B0 2.5-4.5, 0B0 5-7.
TEST(RunSchedule, LetsMessagesTakeTheirTime) {
  const Schedule schedule{"",
                          1,
                          {0, 1},
                          {{{ActionKind::kForward, 0, 0}, {ActionKind::kBackward, 0, 0}},
                           {{ActionKind::kForward, 1, 0}, {ActionKind::kBackward, 1, 0}}}};
  const auto time = [](const Action& action) { return Seconds(action.kind == ActionKind::kForward ? 1 : 2); };
  const ScheduleTimes times = RunSchedule(schedule, time, Seconds(0.5));
  EXPECT_EQ(times.done, (std::vector<Duration>{Seconds(7), Seconds(4.5)}));
  EXPECT_EQ(times.work, (std::vector<Duration>{Seconds(3), Seconds(3)}));
  EXPECT_EQ(times.makespan, Seconds(7));
}

// Stages that share a rank hand over without a message.
TEST(RunSchedule, HandsOverWithinARankForNothing) {
  const Schedule schedule{"", 1, {0, 0}, {{{ActionKind::kForward, 0, 0}, {ActionKind::kForward, 1, 0}}}};
  const ScheduleTimes times = RunSchedule(
      schedule, [](const Action&) { return Seconds(1); }, Seconds(10));
  EXPECT_EQ(times.done[0], Seconds(2));
}

StageTimes Times(int64_t forward, int64_t input_gradient, int64_t weight_gradient) {
  return {Picoseconds(forward), Picoseconds(input_gradient), Picoseconds(weight_gradient)};
}

// The time that a rank idles before its first action, between its actions and after its last. All ranks have
// the same work.
Duration Bubble(const Schedule& schedule, const StageTimes& times) {
  const int64_t stages_per_rank = schedule.stages() / static_cast<int64_t>(schedule.ranks.size());
  return RunSchedule(schedule, times).makespan - times.all() * (stages_per_rank * schedule.micro_batches);
}

// Actions as vertices; edges are each rank's order, and the path of activations down and of gradients up the
// stages.
struct ActionGraph {
  explicit ActionGraph(const Schedule& schedule) {
    std::map<std::tuple<bool, int, int64_t>, int> made_by;  // (is gradient, stage, micro-batch)
    std::vector<std::pair<int, int>> edges;
    for (const auto& rank : schedule.ranks) {
      for (size_t i = 0; i < rank.size(); ++i) {
        const int vertex = static_cast<int>(actions.size());
        if (i > 0) edges.emplace_back(vertex - 1, vertex);
        if (rank[i].kind != ActionKind::kWeightGradient) {
          made_by[{rank[i].kind != ActionKind::kForward, rank[i].stage, rank[i].micro_batch}] = vertex;
        }
        actions.push_back(rank[i]);
      }
    }
    for (int vertex = 0; vertex < static_cast<int>(actions.size()); ++vertex) {
      const auto [kind, stage, micro_batch] = actions[vertex];
      if (kind == ActionKind::kWeightGradient) continue;
      const bool is_gradient = kind != ActionKind::kForward;
      const auto producer = made_by.find({is_gradient, is_gradient ? stage + 1 : stage - 1, micro_batch});
      if (producer != made_by.end()) edges.emplace_back(producer->second, vertex);
    }
    std::sort(edges.begin(), edges.end());
    graph = Graph(boost::edges_are_sorted, edges.begin(), edges.end(), actions.size());
    boost::topological_sort(graph, std::back_inserter(last_first));
  }

  Duration LongestPath(const StageTimes& times) const {
    std::vector<Duration> to_end(actions.size());
    Duration longest;
    for (const size_t vertex : last_first) {  // successors come before
      Duration after;
      for (auto [edge, end] = boost::out_edges(vertex, graph); edge != end; ++edge) {
        after = std::max(after, to_end[boost::target(*edge, graph)]);
      }
      to_end[vertex] = after + times.Of(actions[vertex].kind);
      longest = std::max(longest, to_end[vertex]);
    }
    return longest;
  }

  std::vector<Action> actions;
  Graph graph;
  std::vector<size_t> last_first;
};

void ExpectAsPromised(const ScheduleRequest& request, const Schedule& schedule) {
  const std::vector<int64_t> in_flight = ActivationsInFlight(schedule);
  for (int rank = 0; rank < request.ranks; ++rank) {
    ASSERT_EQ(in_flight[rank], PromisedActivationsInFlight(request, rank)) << "rank " << rank;
  }
  const ActionGraph graph(schedule);
  for (const StageTimes& times : {Times(1, 1, 1), Times(2, 3, 1), Times(2, 5, 7), Times(4, 1, 3)}) {
    ASSERT_EQ(RunSchedule(schedule, times).makespan, graph.LongestPath(times));
    if (const auto closed = ClosedFormBubble(request, times)) {
      ASSERT_EQ(Bubble(schedule, times).picoseconds(), closed->picoseconds());
    }
  }
}

class EverySchedule : public ::testing::TestWithParam<std::string> {};

TEST_P(EverySchedule, HasTheFormulasBubbleAndThePromisedActivations) {
  int accepted = 0;
  for (int ranks = 2; ranks <= 16; ++ranks) {
    for (int virtual_stages = 1; virtual_stages <= 3; ++virtual_stages) {
      for (int64_t micro_batches = 1; micro_batches <= 64; ++micro_batches) {
        const ScheduleRequest request{GetParam(), ranks, virtual_stages, micro_batches};
        const auto schedule = MakeSchedule(request.name, ranks, virtual_stages, micro_batches);
        if (!schedule) continue;
        SCOPED_TRACE(fmt::format("{} ranks, {} virtual stages, {} micro-batches", ranks, virtual_stages,
                                 micro_batches));
        const auto fault = FindScheduleFault(*schedule);
        ASSERT_FALSE(fault) << fault->what;
        ExpectAsPromised(request, *schedule);
        if (HasFatalFailure()) return;
        ++accepted;
      }
    }
  }
  EXPECT_GT(accepted, 500);
}

INSTANTIATE_TEST_SUITE_P(, EverySchedule, ::testing::ValuesIn(ScheduleNames()),
                         [](const auto& info) { return "schedule_" + info.param; });

// Both actions of a pair begin when both inputs are there, and their results are there when both are done:
// 1F1 and 1B0 take 1 + 2 from 2 on.
TEST(RunSchedule, HandsOnWhatAPairMadeAtItsEnd) {
  Schedule schedule{"",
                    2,
                    {0, 1},
                    {{{ActionKind::kForward, 0, 0},
                      {ActionKind::kForward, 0, 1},
                      {ActionKind::kBackward, 0, 0},
                      {ActionKind::kBackward, 0, 1}},
                     {{ActionKind::kForward, 1, 0},
                      {ActionKind::kForward, 1, 1},
                      {ActionKind::kBackward, 1, 0},
                      {ActionKind::kBackward, 1, 1}}}};
  schedule.paired = {{ActionKind::kForward, 1, 1}};
  const ScheduleTimes times = RunSchedule(schedule, Times(1, 1, 1));
  const auto at = [](int64_t moment) { return Picoseconds(moment); };
  EXPECT_EQ(times.starts[1], (std::vector<Duration>{at(1), at(2), at(2), at(5)}));
  EXPECT_EQ(times.starts[0], (std::vector<Duration>{at(0), at(1), at(5), at(7)}));
  EXPECT_EQ(times.work, (std::vector<Duration>{at(6), at(6)}));
}

// dualpipe_v's README: (p-1) (F&B + B - 3W).
TEST(Bubble, OfPairsIsWhatDualPipeVPromises) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (int64_t micro_batches = 2 * ranks; micro_batches <= 3 * ranks; ++micro_batches) {
      const auto schedule = MakePairedSchedule("dualpipe_v", ranks, 2, micro_batches);
      ASSERT_TRUE(schedule);
      const auto closed =
          ClosedFormBubble({"dualpipe_v", ranks, 2, micro_batches, /*is_paired=*/true}, Times(1, 1, 1));
      ASSERT_TRUE(closed);
      EXPECT_EQ(Bubble(*schedule, Times(1, 1, 1)), *closed) << ranks << " ranks, " << micro_batches;
    }
  }
}

TEST(PromisedActivationsInFlight, AreOneMoreOfPairs) {
  for (const char* name : {"interleaved", "dualpipe_v"}) {
    for (int ranks = 2; ranks <= 6; ++ranks) {
      const int64_t micro_batches = 3 * ranks;
      const auto schedule = MakePairedSchedule(name, ranks, 2, micro_batches);
      ASSERT_TRUE(schedule);
      const std::vector<int64_t> in_flight = ActivationsInFlight(*schedule);
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(in_flight[rank], PromisedActivationsInFlight({name, ranks, 2, micro_batches, true}, rank))
            << name << ", rank " << rank << " of " << ranks;
    }
  }
}

// p = 4, m = 8, and a rank's layers take F = I = W = 2; each of two stages per rank takes 1. 1F1B idles 3 x
// (2+4) = 18, interleaved half of that, ZB-H1 3 x 2 = 6 and ZB-V, with both advantages, 3 x 1 = 3.
TEST(Bubble, ShrinksFrom1F1BToInterleavedToZeroBubble) {
  EXPECT_EQ(Bubble(*MakeSchedule("1f1b", 4, 1, 8), Times(2, 2, 2)), Picoseconds(18));
  EXPECT_EQ(Bubble(*MakeSchedule("interleaved", 4, 2, 8), Times(1, 1, 1)), Picoseconds(9));
  EXPECT_EQ(Bubble(*MakeSchedule("zb_h1", 4, 1, 8), Times(2, 2, 2)), Picoseconds(6));
  EXPECT_EQ(Bubble(*MakeSchedule("zb_v", 4, 2, 8), Times(1, 1, 1)), Picoseconds(3));
}

// The bubble of ZB-H1 grows with the longer of what a rank cannot overlap: F + I - W, F, or I; p = 4, so
// three hops.
TEST(ClosedFormBubble, OfZeroBubbleH1TakesTheLargestOfThree) {
  const ScheduleRequest request{"zb_h1", 4, 1, 8};
  EXPECT_EQ(ClosedFormBubble(request, Times(2, 3, 1)), Picoseconds(3 * 4));
  EXPECT_EQ(ClosedFormBubble(request, Times(5, 1, 3)), Picoseconds(3 * 5));
  EXPECT_EQ(ClosedFormBubble(request, Times(2, 5, 7)), Picoseconds(3 * 5));
}

TEST(ClosedFormBubble, IsSilentOutsideItsRegime) {
  EXPECT_FALSE(ClosedFormBubble({"zb_h1", 4, 1, 3}, Times(1, 1, 1)));
  EXPECT_FALSE(ClosedFormBubble({"zb_v", 4, 2, 5}, Times(1, 1, 1)));
  EXPECT_FALSE(ClosedFormBubble({"zb_v", 4, 2, 8}, Times(1, 2, 1)));
  EXPECT_FALSE(ClosedFormBubble({"dualpipe_v", 4, 2, 8}, Times(1, 2, 1)));
}

}  // namespace
}  // namespace windtunnel
