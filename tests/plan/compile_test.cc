#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "plan/axes.h"
#include "plan/outline.h"
#include "plan/plan.h"
#include "plan/program_graph.h"
#include "sim/role_memory.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// Nodes of four.
TEST(Axes, AreCountedWhereTheirGroupsLieOnSeveralNodes) {
  const auto count = [](const ParallelSpec& parallel) {
    Scenario s;
    s.parallel = parallel;
    s.cluster.devices_per_node = 4;
    s.cluster.nodes = s.WorldSize() / 4;
    return AxesAcrossNodes(s);
  };
  ParallelSpec p;
  p.data = {.kind = DataParallelKind::kDdp, .size = 4};
  p.pipeline.size = 2;
  EXPECT_EQ(count(p), 0);
  p.data.size = 16;
  EXPECT_EQ(count(p), 1);
  p.tensor.size = 4;
  EXPECT_EQ(count(p), 1);
  p.tensor.size = 8;
  EXPECT_EQ(count(p), 2);

  p = {};
  p.data = {.kind = DataParallelKind::kFsdp, .size = 16, .sharding = Sharding::kHybridShard, .shard_size = 4};
  EXPECT_EQ(count(p), 1) << "replicas";
  p.data.shard_size = 8;
  EXPECT_EQ(count(p), 2) << "shards and replicas";
  p.data.sharding = Sharding::kFullShard;
  EXPECT_EQ(count(p), 1);
  p.data.reshard_ranks = 4;
  EXPECT_EQ(count(p), 1);
  p.data.reshard_ranks = 8;
  EXPECT_EQ(count(p), 2) << "what is gathered again";
  p.data.kind = DataParallelKind::kZero1;
  p.data.shard_size = 0;
  EXPECT_EQ(count(p), 1) << "the key has no effect on other kinds";

  p = {};
  p.data = {.kind = DataParallelKind::kZero1, .size = 16};
  p.expert.size = 4;
  EXPECT_EQ(count(p), 2) << "gradients of experts and of the rest";
  p.expert.size = 8;
  EXPECT_EQ(count(p), 3) << "tokens, too";
  p.tensor.size = p.expert.size = 4;
  p.expert.tensor = 1;
  EXPECT_EQ(count(p), 1) << "tensor ranks alone share experts";
  p.tensor.size = p.expert.size = 1;
  p.context.size = 2;
  EXPECT_EQ(count(p), 1);
  p.context.size = 8;
  EXPECT_EQ(count(p), 2) << "keys and gradients";
}

TEST(CompilePlan, CountsGptParametersAsPublished) {
  // GPT-2 124M: 12 layers of hidden 768, vocabulary 50,257, 1,024 positions, tied: 124,439,808.
  Scenario s = TinyGpt();
  s.model.layers = 12;
  s.model.hidden = 768;
  s.model.heads = s.model.kv_heads = 12;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 3072;
  s.model.vocab = 50257;
  s.model.seq_len = 1024;
  s.model.tie_embeddings = true;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(plan.model.parameters, 124'439'808);
  EXPECT_EQ(plan.model.parameters_without_positions, 124'439'808 - 1024 * 768);
  // PaLM: 6 * 123,653,376 + 12 * 12 * 768 * 1024 = 855,166,464 FLOPs a token.
  EXPECT_DOUBLE_EQ(plan.model.flops_per_token.count(), 855'166'464.0);
}

// A module that predicts a further token (MTP) is a layer, a projection of two rows into one, three more
// norms, and the head once more.
TEST(CompilePlan, CountsWhatModulesForTokensFurtherOnTake) {
  Scenario s = TinyLlama();
  s.model.tie_embeddings = false;
  const ModelSpec& model = s.model;
  Scenario longer = s, further = s;
  ++longer.model.layers;
  further.model.mtp.emplace();
  const ModelStatistics of_layer = CompilePlan(longer)->model, of_module = CompilePlan(further)->model;
  const int64_t more = 2 * model.hidden * model.hidden + 3 * model.hidden;
  EXPECT_EQ(of_module.parameters, of_layer.parameters + more);
  EXPECT_DOUBLE_EQ(
      of_module.flops_per_token.count(),
      of_layer.flops_per_token.count() + 6.0 * static_cast<double>(more + model.vocab * model.hidden));
}

TEST(CompilePlan, CountsLlamaParametersAsPublished) {
  // Llama-2 7B: 6,738,415,616.
  Scenario s = TinyLlama();
  s.model.layers = 32;
  s.model.hidden = 4096;
  s.model.heads = s.model.kv_heads = 32;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 11008;
  s.model.vocab = 32000;
  EXPECT_EQ(CompilePlan(s)->model.parameters, 6'738'415'616);
}

TEST(CompilePlan, EveryGradientIsWrittenBeforeTheOptimizerReadsIt) {
  for (const Scenario& s : {TinyGpt(1), TinyLlama(2), TinyMlp(2)}) {
    const Plan plan = *CompilePlan(s);
    const Role& role = plan.roles[0];
    std::set<BufferId> written;
    for (const Op& op : role.steady.ops) {
      if (std::holds_alternative<OptimizerUpdate>(op.kind)) {
        for (const Slice& gradient : op.reads)
          EXPECT_TRUE(written.count(gradient.buffer)) << role.buffers[gradient.buffer].name;
      }
      for (const Slice& slice : op.writes) written.insert(slice.buffer);
    }
  }
}

TEST(CompilePlan, TiedEmbeddingsAddTheHeadsAndTheEmbeddingsGradient) {
  Scenario s = TinyGpt();
  s.model.tie_embeddings = true;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(plan.model.parameters, CompilePlan(TinyGpt())->model.parameters - 64 * 32);
  bool found = false;
  for (const Op& op : plan.roles[0].steady.ops) {
    const auto* embedding = std::get_if<EmbeddingBackward>(&op.kind);
    if (embedding == nullptr) continue;
    EXPECT_TRUE(embedding->accumulate_table);
    EXPECT_FALSE(embedding->accumulate_positions);
    found = true;
  }
  EXPECT_TRUE(found);
}

TEST(CompilePlan, LaterMicroBatchesAddToGradients) {
  Scenario s = TinyGpt();
  s.batch.accumulate = 2;
  const Plan plan = *CompilePlan(s);
  for (const Op& op : plan.roles[0].steady.ops) {
    if (const auto* gemm = std::get_if<Gemm>(&op.kind); gemm != nullptr && gemm->transpose_a) {
      EXPECT_EQ(gemm->accumulate, op.micro_batch == 1) << op.name;
    }
    if (const auto* loss = std::get_if<CrossEntropy>(&op.kind)) {
      EXPECT_EQ(loss->gradient_scale, 0.5);
    }
  }
}

TEST(CompilePlan, OptimizerStateIsMadeInTheFirstStep) {
  const Plan plan = *CompilePlan(TinyGpt());
  auto states = [&](const Program& program) {
    int count = 0;
    for (const MemoryOp& op : program.memory)
      count += op.allocates() && plan.roles[0].buffers[op.buffer].name.ends_with(".exp_avg");
    return count;
  };
  EXPECT_EQ(states(plan.roles[0].startup[0]), static_cast<int>(plan.roles[0].parameters.size()));
  EXPECT_EQ(states(plan.roles[0].steady), 0);
}

TEST(CompilePlan, ProgramsAreAcyclicAndEndWithTheBarrier) {
  const Plan plan = *CompilePlan(TinyLlama(2));
  EXPECT_NO_THROW(ProgramGraph(plan.roles[0].steady).TopologicalOrder());
  EXPECT_EQ(plan.roles[0].steady.ops.back().name, "barrier");
}

// Dropout follows the embedding and both halves of each block, and in other frameworks' eager attention the
// probabilities as well. The masks live until backward.
TEST(CompilePlan, DropoutIsAPassForwardAndOneBackwardWithAMaskBetween) {
  for (const auto& [framework, kind, of_block] :
       {std::tuple(Framework::kWindtunnel, AttentionKind::kEager, 2),
        std::tuple(Framework::kWindtunnel, AttentionKind::kFlash, 2),
        std::tuple(Framework::kPytorch, AttentionKind::kEager, 3),
        std::tuple(Framework::kPytorch, AttentionKind::kFlash, 2)}) {
    Scenario s = TinyGpt();
    s.framework = framework;
    s.model.dropout = 0.1;
    s.model.attention = kind;
    const int places = 1 + 2 * of_block;
    const Plan plan = *CompilePlan(s);
    int forward = 0, backward = 0, masks = 0;
    for (const Op& op : plan.roles[0].steady.ops) {
      if (const auto* drop = std::get_if<Dropout>(&op.kind)) ++(drop->backward ? backward : forward);
    }
    for (const MemoryOp& op : plan.roles[0].steady.memory)
      masks += !op.allocates() && plan.roles[0].buffers[op.buffer].name.ends_with(".mask") &&
               op.phase == Phase::kBackward;
    EXPECT_EQ(forward, places);
    EXPECT_EQ(backward, places);
    EXPECT_EQ(masks, places);
  }
}

// The kernels of the project's own runtime make random numbers, which takes time; those of others cost what
// they cost without.
TEST(CompilePlan, AttentionDropsWithinItsKernelsInTheProjectsOwnRuntime) {
  for (const Framework framework : {Framework::kWindtunnel, Framework::kPytorch}) {
    Scenario s = TinyLlama();
    s.framework = framework;
    s.model.dropout = 0.1;
    int attention = 0, dropping = 0;
    const Plan plan = *CompilePlan(s, {.evaluates = true});
    for (const Op& op : plan.roles[0].steady.ops) {
      const std::string key = CostKey(op.kind);
      attention += key.starts_with("attention_");
      dropping += key.starts_with("attention_") && key.ends_with(" dropout");
    }
    EXPECT_EQ(attention, 4);
    EXPECT_EQ(dropping, framework == Framework::kWindtunnel ? 4 : 0);
    for (const Op& op : plan.roles[0].evaluate.ops)
      EXPECT_EQ(CostKey(op.kind).find("dropout"), std::string::npos) << op.name;
  }
}

// A recomputed block runs its dropouts again, up to its end, where the last mask is made.
TEST(CompilePlan, RecomputationMakesMasksAgain) {
  Scenario s = TinyGpt();
  s.model.dropout = 0.1;
  s.recompute = Recompute::kFull;
  for (const Framework framework : {Framework::kWindtunnel, Framework::kPytorch}) {
    s.framework = framework;
    int again = 0;
    const Plan plan = *CompilePlan(s);
    for (const Op& op : plan.roles[0].steady.ops)
      again += std::holds_alternative<Dropout>(op.kind) && op.phase == Phase::kRecompute;
    EXPECT_EQ(again, 2 * (framework == Framework::kWindtunnel ? 2 : 3));
  }
}

// The layers that run again, by number.
std::set<int> LayersAgain(const Scenario& s) {
  std::set<int> layers;
  const Plan plan = *CompilePlan(s);
  for (const Role& role : plan.roles)
    for (const Op& op : role.steady.ops)
      if (op.phase == Phase::kRecompute) layers.insert(op.layer);
  return layers;
}

// The first ones of each stage (Megatron's block method), or every so many-th of the model.
TEST(CompilePlan, SomeLayersAreRecomputed) {
  Scenario s = TinyGpt();
  s.model.layers = 6;
  s.recompute = Recompute::kFull;
  EXPECT_EQ(LayersAgain(s), (std::set<int>{0, 1, 2, 3, 4, 5}));
  s.recompute_layers = 2;
  EXPECT_EQ(LayersAgain(s), (std::set<int>{0, 1}));
  s.recompute_layers = 7;
  EXPECT_EQ(LayersAgain(s), (std::set<int>{0, 1, 2, 3, 4, 5}));
  s.recompute_layers = 0;
  s.recompute_every = 2;
  EXPECT_EQ(LayersAgain(s), (std::set<int>{1, 3, 5}));
  EXPECT_EQ(s.RecomputedShare(), 0.5);
  s.recompute_every = 1;
  s.recompute_layers = 1;
  s.parallel.pipeline = {.size = 2, .schedule = "1f1b"};
  s.batch.accumulate = 2;
  s.cluster.devices_per_node = 2;
  EXPECT_EQ(LayersAgain(s), (std::set<int>{0, 3}));
  EXPECT_NEAR(s.RecomputedShare(), 2.0 / 6, 1e-12);
}

// Each layer that is recomputed instead of kept takes less memory.
TEST(CompilePlan, EachRecomputedLayerSavesMemory) {
  Scenario s = TinyLlama();
  s.model.layers = 6;
  s.batch.micro = 16;
  const auto peak = [&] { return SimulateMemory(CompilePlan(s)->roles[0])->steady.requested; };
  Bytes before = peak();
  s.recompute = Recompute::kFull;
  for (s.recompute_layers = 1; s.recompute_layers < 6; ++s.recompute_layers) {
    const Bytes now = peak();
    EXPECT_LT(now, before) << s.recompute_layers;
    before = now;
  }
  const Bytes all_named = peak();
  s.recompute_layers = 0;
  EXPECT_EQ(peak(), all_named);
}

// The first bucket's gather begins with the step; the next one's, when the first operator needs the first's
// values.
TEST(CompilePlan, LateGathersAreAwaitedWhereParametersAreFirstNeeded) {
  Scenario s = TinyGpt(2);
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.parallel.data.bucket_cap_mb = 0.02;
  s.parallel.data.overlap_param_gather = true;
  const Plan plan = *CompilePlan(s);
  const std::vector<Op>& ops = plan.roles[0].steady.ops;
  std::vector<OpIndex> gathers;
  OpIndex optimizer = -1;
  for (OpIndex i = 0; i < static_cast<OpIndex>(ops.size()); ++i) {
    const auto* c = std::get_if<Collective>(&ops[i].kind);
    if (c != nullptr && c->kind == CollectiveKind::kAllGather) gathers.push_back(i);
    if (std::holds_alternative<OptimizerUpdate>(ops[i].kind) && optimizer < 0) optimizer = i;
  }
  ASSERT_GT(gathers.size(), 2u);
  EXPECT_LT(gathers.back(), optimizer);
  for (OpIndex gather : gathers) EXPECT_EQ(ops[gather].phase, Phase::kForward) << gather;
  // Some operator waits for the first gather before the third begins.
  const bool awaited = std::any_of(ops.begin(), ops.begin() + gathers[2], [&](const Op& op) {
    return std::find(op.dependencies.begin(), op.dependencies.end(), gathers[0]) != op.dependencies.end();
  });
  EXPECT_TRUE(awaited);
}

// Where GEMMs overlap in parts with a ring of tensor ranks, a block has several times as many operators.
TEST(CompilePlan, RefusesStepsOfMoreOperatorsThanFitInMemory) {
  Scenario s = TinyLlama(1);
  s.model.layers = 96;
  s.model.heads = s.model.kv_heads = 8;
  s.model.head_dim = 4;
  s.parallel.tensor = {.size = 8, .sequence = true};
  s.batch.accumulate = 800;
  s.cluster.devices_per_node = 8;
  EXPECT_TRUE(CheckSize(s));
  s.parallel.tensor.overlap = true;
  EXPECT_TRUE(CheckSupported(s)) << "steps that are composed have no such limit";
  const Status refused = CheckSize(s);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(
      refused.error().message.find("batch.accumulate is 800: a rank would go through 76800 blocks in a step, "
                                   "expected at most 29457, since every operator of them is simulated (give "
                                   "fewer micro-batches, in which the step's time is nearly linear, or more "
                                   "data ranks with fewer of them each)"),
      std::string::npos)
      << refused.error().message;
}

TEST(FindProgramError, NamesTheOperatorThatUsesAFreedBuffer) {
  const std::vector<Buffer> buffers = {{"x", Bytes(40)}};
  const std::vector<Stream> streams = {{StreamKind::kCompute, "compute", -1}};
  const std::vector<Axis> axes = {MakeAxis("world", 1, 1, 1)};
  Program program{"p", {Op(Scale{10, 2.0}, 0, {{0, 0, 10}}, {{0, 0, 10}}, {}, "double")}};
  std::vector<bool> alive;
  EXPECT_EQ(FindProgramError(program, buffers, streams, axes, alive),
            "p: operator 0 'double' (scale) uses 'x', which is not allocated");
  alive = {true};
  EXPECT_EQ(FindProgramError(program, buffers, streams, axes, alive), "");
  program.ops[0].reads[0].offset = 1;
  EXPECT_EQ(FindProgramError(program, buffers, streams, axes, alive),
            "p: operator 0 'double' (scale) uses elements 1+10 of 'x', which has 10");
}

}  // namespace
}  // namespace windtunnel
