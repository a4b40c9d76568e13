#include "plan/graphs.h"

#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Op Of(OpKind kind, StreamId stream = kComputeStream, std::vector<OpIndex> dependencies = {}) {
  Op op;
  op.kind = std::move(kind);
  op.stream = stream;
  op.dependencies = std::move(dependencies);
  return op;
}
Op Kernel(std::vector<OpIndex> dependencies = {}) {
  return Of(Scale{}, kComputeStream, std::move(dependencies));
}
Op OnStream(StreamId stream, std::vector<OpIndex> dependencies) {
  return Of(Collective{CollectiveKind::kAllReduce, DType::kFloat32, 8}, stream, std::move(dependencies));
}

std::vector<int32_t> GraphsOf(std::vector<Op> ops) {
  Program program{"made up", std::move(ops)};
  FormGraphs(program);
  std::vector<int32_t> graphs;
  for (const Op& op : program.ops) graphs.push_back(op.graph);
  return graphs;
}

using Graphs = std::vector<int32_t>;

TEST(FormGraphs, TakesOperatorsThatFollowEachOther) {
  EXPECT_EQ(GraphsOf({Kernel(), Kernel(), Kernel()}), (Graphs{3, -1, -1}));
}

TEST(FormGraphs, LeavesASingleOperatorAlone) { EXPECT_EQ(GraphsOf({Kernel()}), (Graphs{0})); }

TEST(FormGraphs, EndsWhereOtherStreamsWait) {
  EXPECT_EQ(GraphsOf({Kernel(), Kernel(), Kernel(), Kernel(), OnStream(1, {1}), Kernel()}),
            (Graphs{2, -1, 2, -1, 0, 0}));
}

TEST(FormGraphs, BeginsWhereItWaitsForOtherStreams) {
  EXPECT_EQ(GraphsOf({OnStream(1, {}), Kernel(), Kernel(), Kernel({0}), Kernel()}),
            (Graphs{0, 2, -1, 2, -1}));
}

TEST(FormGraphs, EndsWhereTheHostIssuesSomethingElse) {
  EXPECT_EQ(GraphsOf({Kernel(), Kernel(), OnStream(1, {}), Kernel(), Kernel()}), (Graphs{2, -1, 0, 2, -1}));
  const Op wait = Of(HostWait{});
  EXPECT_EQ(GraphsOf({Kernel(), Kernel(), wait, Kernel(), Kernel()}), (Graphs{2, -1, 0, 2, -1}));
}

TEST(FormGraphs, LeavesOutWhatChangesFromStepToStep) {
  const Op load = Of(LoadBatch{}), update = Of(OptimizerUpdate{});
  EXPECT_EQ(GraphsOf({load, Kernel(), Kernel(), update, Kernel(), Kernel()}), (Graphs{0, 2, -1, 0, 2, -1}));
}

TEST(FormGraphs, LeavesOutWhatTheHostTakesPartIn) {
  Op on_host = Kernel();
  on_host.on_host = true;
  const Op to_host = Of(Copy{.crosses = Copy::Crosses::kToHost}), within = Of(Copy{});
  EXPECT_EQ(GraphsOf({Kernel(), within, on_host, to_host, Kernel(), within}), (Graphs{2, -1, 0, 0, 2, -1}));
}

// A graph contains everything that a device runs in a step of one rank, except the batch and the update. The
// barrier of a single rank involves no other.
TEST(CompilePlan, FormsGraphsWhereTheScenarioAsksForThem) {
  Scenario s = TinyGpt();
  s.cluster.device = "cuda";
  const Plan without = *CompilePlan(s);
  s.run.cuda_graphs = true;
  const Plan with = *CompilePlan(s);
  const std::vector<Op>& ops = with.roles[0].steady.ops;
  ASSERT_EQ(ops.size(), without.roles[0].steady.ops.size());
  int64_t in_graphs = 0, alone = 0, graphs = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    EXPECT_EQ(without.roles[0].steady.ops[i].graph, 0);
    EXPECT_EQ(CostKey(ops[i]), CostKey(without.roles[0].steady.ops[i]));
    if (ops[i].graph != 0) ++in_graphs;
    else ++alone;
    if (ops[i].graph > 0) ++graphs;
  }
  EXPECT_GT(in_graphs, 40);
  EXPECT_EQ(graphs, 1);
  EXPECT_LE(alone, 3) << "the batch and the update";
}

// A graph's operators follow each other, and there are as many as it says.
TEST(CompilePlan, GraphsAreWhole) {
  for (DataParallelKind kind : {DataParallelKind::kDdp, DataParallelKind::kZero1, DataParallelKind::kFsdp}) {
    Scenario s = TinyGpt(2);
    s.parallel.data.kind = kind;
    s.cluster.device = "cuda";
    s.run.cuda_graphs = true;
    const Plan plan = *CompilePlan(s);
    int32_t left = 0;
    int graphs = 0;
    for (const Op& op : plan.roles[0].steady.ops) {
      if (left == 0) EXPECT_GE(op.graph, 0) << op.name;
      else EXPECT_EQ(op.graph, -1) << op.name;
      if (left > 0) --left;
      if (op.graph > 0) {
        left = op.graph - 1;
        ++graphs;
      }
    }
    EXPECT_EQ(left, 0);
    EXPECT_GT(graphs, 0);
  }
}

}  // namespace
}  // namespace windtunnel
