// What context parallelism sends, by Megatron's table: keys and values around the ring, or gathered and
// scattered, or heads exchanged. Also which rank has which tokens, and which attention is computed meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/plan.h"
#include "tests/plan/plan_checks.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario Context(Scenario s, ContextKind kind, int64_t ranks = 2) {
  s.model.attention = AttentionKind::kFlash;
  s.parallel.context = {.size = ranks, .kind = kind};
  s.cluster.devices_per_node = s.WorldSize();
  return s;
}

using Counts = std::map<std::pair<CollectiveKind, int64_t>, int>;  // by kind and elements

Counts OfLayer(const Plan& plan, Phase phase) {
  Counts counts;
  for (const Op& op : plan.roles[0].steady.ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (collective == nullptr || op.layer != 0 || op.phase != phase) continue;
    if (plan.roles[0].streams[op.stream].name == "context")
      ++counts[{collective->kind, collective->elements}];
  }
  return counts;
}

// TinyLlama: 2 sequences of 16 tokens, 4 query heads and 2 key heads of 8. One of R ranks has 32 / R tokens.
constexpr int64_t kKeysAndValues = 32 * 2 * 2 * 8, kQkv = 32 * 8 * 8, kOut = 32 * 4 * 8;

TEST(ContextParallel, ARingShiftsKeysAndValuesAndBackTheirGradientsAFullTurn) {
  for (int64_t ranks : {2, 4}) {
    const Plan plan = *CompilePlan(Context(TinyLlama(), ContextKind::kRing, ranks));
    const auto shift = std::pair{CollectiveKind::kShift, kKeysAndValues / ranks};
    const int turns = static_cast<int>(ranks);
    EXPECT_EQ(OfLayer(plan, Phase::kForward), (Counts{{shift, turns - 1}}));
    EXPECT_EQ(OfLayer(plan, Phase::kBackward), (Counts{{shift, turns - 1 + turns}}));
  }
}

TEST(ContextParallel, AllGatherGathersThemAndScattersTheirGradients) {
  const Plan plan = *CompilePlan(Context(TinyLlama(), ContextKind::kAllGather));
  EXPECT_EQ(OfLayer(plan, Phase::kForward), (Counts{{{CollectiveKind::kAllGather, kKeysAndValues}, 1}}));
  EXPECT_EQ(OfLayer(plan, Phase::kBackward), (Counts{{{CollectiveKind::kAllGather, kKeysAndValues}, 1},
                                                     {{CollectiveKind::kReduceScatter, kKeysAndValues}, 1}}));
}

TEST(ContextParallel, UlyssesExchangesHeadsThereAndBack) {
  const Plan plan = *CompilePlan(Context(TinyLlama(), ContextKind::kUlysses));
  const Counts both{{{CollectiveKind::kAllToAll, kQkv / 2}, 1}, {{CollectiveKind::kAllToAll, kOut / 2}, 1}};
  EXPECT_EQ(OfLayer(plan, Phase::kForward), both);
  EXPECT_EQ(OfLayer(plan, Phase::kBackward), both);
}

// With every kind, the ranks share the attention of one device evenly.
TEST(ContextParallel, SharesTheWorkOfAttentionEvenly) {
  const auto flops = [](const Plan& plan) {
    double sum = 0;
    for (const Op& op : plan.roles[0].steady.ops) {
      if (OperatorName(op.kind) == "attention") sum += FlopsOf(op.kind).count();
    }
    return sum;
  };
  Scenario alone = TinyLlama();
  alone.model.seq_len = 1024;
  const double of_one = flops(*CompilePlan(alone));
  for (ContextKind kind : {ContextKind::kRing, ContextKind::kAllGather, ContextKind::kUlysses})
    EXPECT_NEAR(flops(*CompilePlan(Context(alone, kind))), of_one / 2, 0.002 * of_one);
}

TEST(ContextParallel, ShiftsWhileTheBlockBeforeIsComputed) {
  const Plan plan = *CompilePlan(Context(TinyLlama(), ContextKind::kRing));
  const std::vector<Op>& ops = plan.roles[0].steady.ops;
  const auto shift = std::find_if(ops.begin(), ops.end(), [](const Op& op) {
    const auto* c = std::get_if<Collective>(&op.kind);
    return c != nullptr && c->kind == CollectiveKind::kShift;
  });
  const auto waits = [&](const Op& op) {
    return std::find(op.dependencies.begin(), op.dependencies.end(), shift - ops.begin()) !=
           op.dependencies.end();
  };
  const auto block = [&](int step) {
    return std::find_if(ops.begin(), ops.end(), [step](const Op& op) {
      const auto* a = std::get_if<ContextAttentionForward>(&op.kind);
      return a != nullptr && a->step == step;
    });
  };
  ASSERT_LT(shift, block(0));
  EXPECT_FALSE(waits(*block(0)));
  EXPECT_TRUE(waits(*block(1)));
}

// Gradients are averaged over all ranks that have the same weights.
TEST(ContextParallel, ReducesGradientsOverDataAndContext) {
  const Plan plan = *CompilePlan(Context(TinyGpt(2), ContextKind::kRing));
  EXPECT_EQ(plan.world_size, 4);
  EXPECT_EQ(plan.model.tokens_per_step, 2 * 2 * 16);
  for (const Op& op : plan.roles[0].steady.ops) {
    if (!op.name.starts_with("bucket")) continue;
    const Axis& axis = plan.axes[plan.roles[0].streams[op.stream].axis];
    EXPECT_EQ(axis.size(), 4);
  }
}

TEST(DeviceMesh, PutsContextRanksBetweenTensorAndData) {
  ParallelSpec parallel;
  parallel.tensor.size = 2;
  parallel.context.size = 2;
  parallel.data.size = 3;
  parallel.pipeline.size = 2;
  const DeviceMesh mesh(parallel);
  EXPECT_EQ(mesh.world_size(), 24);
  const MeshPlace place = mesh.PlaceOf(7);
  EXPECT_EQ((std::array{place.tensor, place.context, place.data, place.pipeline}), (std::array{1, 1, 1, 0}));
  EXPECT_EQ(mesh.TensorAxis().GroupOf(7).ranks, (std::vector<int>{6, 7}));
  EXPECT_EQ(mesh.ContextAxis().GroupOf(7).ranks, (std::vector<int>{5, 7}));
  EXPECT_EQ(mesh.DataAxis().GroupOf(7).ranks, (std::vector<int>{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(mesh.PipelineAxis().GroupOf(7).ranks, (std::vector<int>{7, 19}));
}

TEST(TokenSplit, InZigzagTakesAChunkFromEitherEnd) {
  const TokenSplit split{2, true};  // of 8 tokens: 0 1 | 2 3 | 4 5 | 6 7
  std::vector<int64_t> first, second;
  for (int64_t token = 0; token < 4; ++token) {
    first.push_back(WholePosition(split, 0, 4, token));
    second.push_back(WholePosition(split, 1, 4, token));
  }
  EXPECT_EQ(first, (std::vector<int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(second, (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(WholePosition({2, false}, 1, 4, 0), 4);
}

TEST(ContextParallel, RefusesWhatItCannotSplitNamingTheKey) {
  Scenario s = Context(TinyLlama(), ContextKind::kRing);
  s.model.seq_len = 18;
  ExpectRefused(s, "model.seq_len");
  s = Context(TinyLlama(), ContextKind::kRing);
  s.model.attention = AttentionKind::kEager;
  ExpectRefused(s, "model.attention");
  ExpectRefused(Context(TinyLlama(), ContextKind::kUlysses, 4), "model.kv_heads");
}

}  // namespace
}  // namespace windtunnel
