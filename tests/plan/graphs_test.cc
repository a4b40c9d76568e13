#include "plan/graphs.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

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
  FormGraphs({}, program);
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

// Of Windtunnel's own, a scope leaves out the operators of other parts.
TEST(CompilePlan, AScopeLimitsGraphs) {
  Scenario s = TinyGpt();
  s.cluster.device = "cuda";
  s.run.cuda_graphs = true;
  s.run.cuda_graph_scope = {CudaGraphScope::kMlp};
  const Plan plan = *CompilePlan(s);
  for (const Op& op : plan.roles[0].steady.ops)
    EXPECT_TRUE(op.graph == 0 || op.part == LayerPart::kMlp) << op.name;
}

// ---- Megatron-Core's --------------------------------------------------------------------------------------

using enum CudaGraphScope;

Scenario Megatron(Scenario s, std::vector<CudaGraphScope> scope) {
  s.cluster.device = "h100-sxm-80g";
  s.framework = Framework::kMegatronCore;
  s.run.backend = Backend::kNccl;
  s.run.cuda_graphs = true;
  s.run.cuda_graph_scope = std::move(scope);
  return s;
}

// TinyLlama with experts in every layer, over two tensor and two expert ranks.
Scenario TinyMixture() {
  Scenario s = TinyLlama(4);
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 0, .shared_ffn = s.model.ffn};
  s.parallel.data.size = 2;
  s.parallel.tensor = {.size = 2, .sequence = true};
  s.parallel.expert.size = 2;
  return s;
}

// A graph's first and last operator, and how many it has.
struct LayerGraph {
  std::string first, last;
  int32_t operators = 0;
  bool is_backward = false;
  int layer = -1;
  bool operator==(const LayerGraph&) const = default;
};

std::vector<LayerGraph> LayerGraphsOf(const Program& program) {
  std::vector<LayerGraph> graphs;
  std::map<std::pair<int32_t, bool>, size_t> current;  // by micro-batch and direction
  for (const Op& op : program.ops) {
    const bool is_backward = op.phase == Phase::kBackward || op.phase == Phase::kRecompute;
    if (op.graph == 0) continue;
    size_t& index = current[{op.micro_batch, is_backward}];
    if (op.graph > 0) {
      index = graphs.size();
      graphs.push_back({op.name, op.name, 0, is_backward, op.layer});
    }
    graphs[index].last = op.name;
    ++graphs[index].operators;
    EXPECT_EQ(graphs[index].layer, op.layer) << op.name;
  }
  return graphs;
}

std::vector<std::string> EndsOf(const std::vector<LayerGraph>& graphs, bool is_backward, int layer) {
  std::vector<std::string> ends;
  for (const LayerGraph& graph : graphs)
    if (graph.is_backward == is_backward && graph.layer == layer)
      ends.push_back(graph.first + " … " + graph.last);
  return ends;
}

std::vector<LayerGraph> LayerGraphsOf(const Scenario& s) {
  const Result<Plan> plan = CompilePlan(s);
  if (!plan) {
    ADD_FAILURE() << plan.error().message;
    return {};
  }
  return LayerGraphsOf(plan->roles[0].steady);
}

using Ends = std::vector<std::string>;

// Attention's graph is from the norm before it to its projection, with the exchanges of tensor ranks.
TEST(MegatronsGraphs, HoldAttentionWithItsCollectives) {
  Scenario s = TinyLlama(2);
  s.parallel.data.size = 1;
  s.parallel.tensor = {.size = 2, .sequence = true};
  const std::vector<LayerGraph> graphs = LayerGraphsOf(Megatron(s, {kAttention}));
  EXPECT_EQ(EndsOf(graphs, false, 0), (Ends{"blocks.0.norm1 … blocks.0.attn.proj"}));
  EXPECT_EQ(EndsOf(graphs, true, 0), (Ends{"blocks.0.attn.proj.dy … blocks.0.norm1"}));
}

// Without a scope, a graph is a whole layer.
TEST(MegatronsGraphs, HoldWholeLayers) {
  const std::vector<LayerGraph> graphs = LayerGraphsOf(Megatron(TinyLlama(), {}));
  EXPECT_EQ(graphs, LayerGraphsOf(Megatron(TinyLlama(), {kAttention, kMlp})));
  for (int layer = 0; layer < TinyLlama().model.layers; ++layer) {
    EXPECT_EQ(EndsOf(graphs, false, layer).size(), 1u);
    EXPECT_EQ(EndsOf(graphs, true, layer).size(), 1u);
  }
}

// The counts' way to the host, the exchange and the experts are in no graph.
TEST(MegatronsGraphs, EndWhereTokensGoToExperts) {
  const std::vector<LayerGraph> graphs =
      LayerGraphsOf(Megatron(TinyMixture(), {kAttention, kMoeRouter, kMoePreprocess}));
  EXPECT_EQ(EndsOf(graphs, false, 0), (Ends{"blocks.0.norm1 … blocks.0.mlp.dispatch"}));
  EXPECT_EQ(EndsOf(graphs, true, 0), (Ends{"blocks.0.mlp.ddispatch … blocks.0.norm1"}));
  const std::vector<LayerGraph> routers = LayerGraphsOf(Megatron(TinyMixture(), {kMoeRouter}));
  EXPECT_EQ(EndsOf(routers, false, 0), (Ends{"blocks.0.norm2 … blocks.0.mlp.route"}));
}

// What is made again in backward is within the graph that needs it, and the norm before experts in none.
TEST(MegatronsGraphs, AreOneForALayersBackward) {
  Scenario s = Megatron(TinyMixture(), {kAttention, kMoeRouter, kMoePreprocess});
  s.recompute = Recompute::kSelective;
  s.recompute_modules = {RecomputeModule::kLayerNorm, RecomputeModule::kCoreAttention,
                         RecomputeModule::kMoeActivation};
  const std::vector<LayerGraph> graphs = LayerGraphsOf(s);
  EXPECT_EQ(EndsOf(graphs, true, 0), (Ends{"blocks.0.mlp.ddispatch … blocks.0.norm1"}));
  Scenario beside = Megatron(TinyNeox(), {kAttention});
  beside.model.parallel_residual = ParallelResidual::kTwoNorms;
  EXPECT_EQ(EndsOf(LayerGraphsOf(beside), true, 0).size(), 1u) << "behind the MLP's backward";
}

// Micro-batches that take turns have graphs of their own.
TEST(MegatronsGraphs, AreOfOneMicroBatchEach) {
  Scenario s = TinyMixture();
  s.batch.accumulate = 3;
  const auto alone = LayerGraphsOf(Megatron(s, {kAttention, kMoeRouter}));
  s.parallel.expert.overlap = true;
  const auto in_turns = LayerGraphsOf(Megatron(s, {kAttention, kMoeRouter}));
  for (const bool is_backward : {false, true})
    EXPECT_EQ(EndsOf(in_turns, is_backward, 0), EndsOf(alone, is_backward, 0));
  EXPECT_EQ(EndsOf(alone, false, 0).size(), 3u);
}

// In a hybrid, a mixer and what follows it are two layers.
TEST(MegatronsGraphs, KeepMixersOfHybridsApart) {
  Scenario s = TinyLlama();
  s.model.position = PositionKind::kNone;
  s.model.mamba =
      MambaSpec{.pattern = "M-*-", .state = 8, .head_dim = 16, .heads = 4, .groups = 2, .chunk = 8};
  s.model.layers = 2;
  const std::vector<LayerGraph> graphs = LayerGraphsOf(Megatron(s, {kAttention, kMamba, kMlp}));
  for (const int layer : {0, 1})
    for (const bool is_backward : {false, true})
      EXPECT_EQ(EndsOf(graphs, is_backward, layer).size(), 2u) << layer;
}

// With a capacity, experts and their exchanges may be in it, too.
TEST(MegatronsGraphs, HoldExpertsThatTakeAFixedNumberOfTokens) {
  Scenario s = TinyMixture();
  s.model.experts->capacity_factor = 1;
  const std::vector<LayerGraph> graphs = LayerGraphsOf(Megatron(s, {kMoe}));
  EXPECT_EQ(EndsOf(graphs, false, 0).size(), 1u);
  EXPECT_EQ(EndsOf(graphs, false, 0)[0].substr(0, 14), "blocks.0.norm2");
}

// What DDP does where a layer's backward writes gradients is launched by itself, and ends no graph.
TEST(MegatronsGraphs, LeaveOutTheStrategy) {
  Scenario s = TinyLlama(2);
  s.parallel.data.bucket_cap_mb = 0.001;
  const Plan plan = *CompilePlan(Megatron(s, {}));
  int reductions = 0;
  for (const Op& op : plan.roles[0].steady.ops) {
    if (!IsCommunication(op.kind)) continue;
    ++reductions;
    EXPECT_EQ(op.graph, 0) << op.name;
  }
  EXPECT_GT(reductions, 4);
  EXPECT_EQ(EndsOf(LayerGraphsOf(plan.roles[0].steady), true, 0).size(), 1u);
}

// One graph of everything but the batch and the optimizer.
TEST(MegatronsGraphs, HoldAllPasses) {
  const Plan plan = *CompilePlan(Megatron(TinyLlama(2), {kFullIteration}));
  int graphs = 0;
  for (const Op& op : plan.roles[0].steady.ops) {
    graphs += op.graph > 0;
    const bool is_outside = std::holds_alternative<LoadBatch>(op.kind) || op.phase == Phase::kOptimizer ||
                            op.phase == Phase::kEnd;
    EXPECT_EQ(op.graph == 0, is_outside) << op.name;
  }
  EXPECT_EQ(graphs, 1);
}

}  // namespace
}  // namespace windtunnel
