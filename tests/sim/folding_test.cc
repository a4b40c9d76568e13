#include "sim/folding.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fmt/format.h>
#include <map>
#include <set>

#include "plan/plan.h"
#include "sim/predict.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/sim/small_clusters.h"

namespace windtunnel {
namespace {

Scenario Cluster(Scenario s, int tensor, int pipeline, int data) {
  s.optimizer.clip_norm = 1;
  return OnNodesOfFour(std::move(s), "a100-sxm-80g", tensor, pipeline, data);
}

TEST(Folding, OneClassForEachStage) {
  const Folding folding = Fold(Compile(Cluster(TinyGpt(), 2, 4, 4)));
  EXPECT_EQ(folding.representatives, (std::vector<int>{0, 8, 16, 24}));
  EXPECT_EQ(folding.sizes, (std::vector<int64_t>{8, 8, 8, 8}));
  EXPECT_TRUE(folding.is_folded());
}

// Ranks differ by whether they share the straggler's tensor group, its data group, both (only the straggler
// itself) or neither; the same holds in the other stage.
TEST(Folding, StragglerSplitsWhoFeelsIt) {
  Scenario s = Cluster(TinyGpt(), 2, 2, 4);
  s.cluster.straggler = {.rank = 2, .slowdown = 1.3};
  const Folding folding = Fold(Compile(s));
  EXPECT_EQ(folding.sizes, (std::vector<int64_t>{3, 3, 1, 1, 3, 3, 1, 1}));
  EXPECT_EQ(folding.class_of_rank[2], 2);
}

TEST(Folding, StragglerThatIsNotSlowerSplitsNothing) {
  Scenario s = Cluster(TinyGpt(), 2, 2, 4);
  s.cluster.straggler = {.rank = 2, .slowdown = 1.0};
  EXPECT_EQ(Fold(Compile(s)).classes(), 2);
}

// Ranks of one class belong to groups of the same classes; groups of one class have equally many ranks of
// each class.
TEST(Folding, PartitionIsEquitable) {
  EXPECT_TRUE(rc::check([] {
    Scenario s =
        Cluster(TinyGpt(), *rc::gen::element(1, 2), *rc::gen::element(1, 2, 4), *rc::gen::element(1, 2, 4));
    if (s.parallel.tensor.size * s.parallel.pipeline.size * s.parallel.data.size == 1) return;
    s.cluster.devices_per_node = *rc::gen::element(2, 3, 4, 8);
    s.cluster.nodes = 16;
    if (*rc::gen::arbitrary<bool>())
      s.cluster.straggler = {.rank = *rc::gen::inRange<int64_t>(0, s.WorldSize()), .slowdown = 2};
    const Plan plan = Compile(s);
    const Folding folding = Fold(plan);
    for (size_t a = 0; a < plan.axes.size(); ++a) {
      std::map<int32_t, std::multiset<int32_t>> members;
      for (size_t g = 0; g < plan.axes[a].groups.size(); ++g) {
        std::multiset<int32_t> classes;
        for (int rank : plan.axes[a].groups[g].ranks) classes.insert(folding.class_of_rank[rank]);
        const auto [entry, is_new] = members.try_emplace(folding.class_of_group[a][g], classes);
        RC_ASSERT(entry->second == classes);
      }
    }
    for (int rank = 0; rank < plan.world_size; ++rank) {
      const int representative = folding.representatives[folding.class_of_rank[rank]];
      RC_ASSERT(plan.role_of_rank[rank] == plan.role_of_rank[representative]);
      for (const Stream& stream : plan.RoleOf(rank).streams) {
        if (stream.axis < 0) continue;
        const auto& groups = plan.axes[stream.axis].group_of_rank;
        const auto& classes = folding.class_of_group[stream.axis];
        RC_ASSERT((groups[rank] < 0) == (groups[representative] < 0));
        if (groups[rank] >= 0) RC_ASSERT(classes[groups[rank]] == classes[groups[representative]]);
      }
    }
  }));
}

// A step takes equally long whether it is folded or not, and its breakdown is the same.
TEST(Folding, ChangesNoPrediction) {
  const auto profile = ParseProfile(*EmbeddedProfile("a100-sxm-80g"), "a100-sxm-80g");
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_TRUE(rc::check([&] {
    Scenario s = Cluster(*rc::gen::element(TinyGpt(), TinyLlama()), *rc::gen::element(1, 2),
                         *rc::gen::element(1, 2, 4), *rc::gen::element(1, 2, 4));
    if (s.parallel.tensor.size * s.parallel.pipeline.size * s.parallel.data.size == 1) return;
    if (s.parallel.data.size > 1) {
      s.parallel.data.kind =
          *rc::gen::element(DataParallelKind::kDdp, DataParallelKind::kZero1, DataParallelKind::kFsdp);
    }
    if (s.parallel.pipeline.size > 1) s.parallel.pipeline.schedule = *rc::gen::element("1f1b", "zb_h1");
    s.cluster.devices_per_node = *rc::gen::element(2, 4, 8);
    s.cluster.nodes = 16;
    if (*rc::gen::arbitrary<bool>())
      s.cluster.straggler = {.rank = *rc::gen::inRange<int64_t>(0, s.WorldSize()), .slowdown = 1.5};
    auto plan = CompilePlan(s);
    if (!plan) RC_FAIL(plan.error().message);
    const auto model = MakeProfileCostModel(*profile, *plan);
    const auto folded = Predict(*plan, *model, {}), unfolded = Predict(*plan, *model, {.fold = false});
    RC_ASSERT(folded && unfolded);
    RC_ASSERT(folded->p50 == unfolded->p50);
    RC_ASSERT(folded->breakdown.compute == unfolded->breakdown.compute);
    RC_ASSERT(folded->breakdown.exposed_communication == unfolded->breakdown.exposed_communication);
    RC_ASSERT(folded->breakdown.bubble == unfolded->breakdown.bubble);
    RC_ASSERT(static_cast<int>(unfolded->timelines.size()) == plan->world_size);
    RC_ASSERT(folded->by_operator == unfolded->by_operator);
  }));
}

// Shards of experts have groups of their own.
TEST(Folding, ChangesNoPredictionOfShardedExperts) {
  const auto profile = ParseProfile(*EmbeddedProfile("a100-sxm-80g"), "a100-sxm-80g");
  ASSERT_TRUE(profile) << profile.error().message;
  for (int64_t shard_size : {0, 2, 4}) {
    for (int64_t straggler : {-1, 3}) {
      Scenario s = Cluster(TinyLlama(), 2, 2, 8);
      s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 1.5};
      s.parallel.expert.size = 2;
      s.parallel.data.kind = DataParallelKind::kFsdp;
      s.parallel.data.shard_size = shard_size;
      if (shard_size > 0) s.parallel.data.sharding = Sharding::kHybridShard;
      if (straggler >= 0) s.cluster.straggler = {.rank = straggler, .slowdown = 1.5};
      const Plan plan = Compile(s);
      const auto model = MakeProfileCostModel(*profile, plan);
      const auto folded = Predict(plan, *model, {}), unfolded = Predict(plan, *model, {.fold = false});
      ASSERT_TRUE(folded && unfolded);
      EXPECT_EQ(folded->p50, unfolded->p50);
      EXPECT_EQ(folded->breakdown.compute, unfolded->breakdown.compute);
      EXPECT_EQ(folded->breakdown.exposed_communication, unfolded->breakdown.exposed_communication);
      if (straggler < 0) {
        EXPECT_EQ(folded->timelines.size(), 2u);  // a stage each
      }
      EXPECT_EQ(folded->by_operator, unfolded->by_operator);
    }
  }
}

// The number of threads that make roles and simulate their memory changes no prediction.
TEST(Predict, IsTheSameOnAnyNumberOfThreads) {
  const auto profile = ParseProfile(*EmbeddedProfile("a100-sxm-80g"), "a100-sxm-80g");
  ASSERT_TRUE(profile) << profile.error().message;
  Scenario s = Cluster(TinyLlama(), 2, 4, 4);
  s.cluster.jitter = 0.05;
  const Plan alone = Compile(s), together = CompilePlan(s, {.threads = 3}).value();
  ASSERT_EQ(alone.roles.size(), together.roles.size());
  for (size_t i = 0; i < alone.roles.size(); ++i) {
    EXPECT_EQ(alone.roles[i].name, together.roles[i].name);
    EXPECT_EQ(alone.roles[i].ranks, together.roles[i].ranks);
    EXPECT_EQ(alone.roles[i].steady.ops.size(), together.roles[i].steady.ops.size());
  }
  const auto model = MakeProfileCostModel(*profile, alone);
  const auto one = Predict(alone, *model, {.seed = 3, .replicates = 11});
  const auto three = Predict(together, *model, {.seed = 3, .replicates = 11, .threads = 3});
  ASSERT_TRUE(one && three);
  EXPECT_EQ(one->step_times, three->step_times);
  EXPECT_EQ(one->by_operator, three->by_operator);
  for (size_t i = 0; i < one->memory.size(); ++i)
    EXPECT_EQ(one->memory[i].steady.reserved, three->memory[i].steady.reserved);
}

Duration MedianOf(const CostModel& model, const Plan& plan, bool fold) {
  // Few replicates of all ranks, since those take long. With few replicates of one rank the median may be
  // below the one without jitter.
  const auto prediction = Predict(plan, model, {.seed = 7, .replicates = fold ? 101 : 5, .fold = fold});
  EXPECT_TRUE(prediction) << prediction.error().message;
  EXPECT_EQ(prediction->timelines.size() < static_cast<size_t>(plan.world_size), fold);
  return prediction->p50;
}

// With jitter, one rank stands for the distribution of all ranks like it. At 10 % of every operator, the step
// is within 3 % of that of 128 ranks with draws of their own.
TEST(Folding, JitterCostsNoUnfolding) {
  const auto profile = ParseProfile(*EmbeddedProfile("a100-sxm-80g"), "a100-sxm-80g");
  ASSERT_TRUE(profile) << profile.error().message;
  struct Case {
    int tensor, pipeline, data;
    DataParallelKind kind;
  };
  for (const Case& c : {Case{1, 1, 128, DataParallelKind::kDdp}, Case{1, 1, 128, DataParallelKind::kFsdp},
                        Case{4, 1, 32, DataParallelKind::kDdp}, Case{2, 2, 32, DataParallelKind::kZero1}}) {
    Scenario s = Cluster(TinyLlama(), c.tensor, c.pipeline, c.data);
    s.name = fmt::format("tensor {} pipeline {} data {}", c.tensor, c.pipeline, c.data);
    s.model.hidden = 2048;  // kernels long enough for the host not to matter
    s.model.head_dim = s.model.hidden / s.model.heads;
    s.model.ffn = 8192;
    s.model.layers = 8;
    s.model.seq_len = 2048;
    s.model.heads = s.model.kv_heads = 16;
    s.model.head_dim = s.model.hidden / s.model.heads;
    s.parallel.data.kind = c.kind;
    const Plan even = Compile(s);
    s.cluster.jitter = 0.1;
    const Plan plan = Compile(s);
    const auto model = MakeProfileCostModel(*profile, plan);
    const Duration base = Predict(even, *model, {})->p50;
    const Duration folded = MedianOf(*model, plan, true), unfolded = MedianOf(*model, plan, false);
    EXPECT_GT(folded, base) << s.name;
    EXPECT_GT(unfolded, base) << s.name;
    EXPECT_NEAR(folded / unfolded, 1, 0.03) << s.name;
    // FSDP's ranks drift apart from unit to unit until the step's end, since prefetched gathers hold none of
    // them up.
    if (c.kind == DataParallelKind::kFsdp) {
      EXPECT_GT((folded - base) / (unfolded - base), 0.25)
          << s.name << ": " << folded.picoseconds() << " of " << unfolded.picoseconds() << " beside "
          << base.picoseconds();
    }
  }
}

// Reductions after backward begin when the latest rank arrives, and for that rank nothing is late. That they
// run beside other kernels of the simulated rank slows down no rank for which others wait. (An H100's GEMMs
// take twice as long beside them.)
TEST(Folding, WhatIsHiddenFromTheLatestHoldsNobodyUp) {
  const auto profile = ParseProfile(*EmbeddedProfile("h100-sxm-80g"), "h100-sxm-80g");
  ASSERT_TRUE(profile) << profile.error().message;
  Scenario s = Cluster(TinyLlama(), 1, 1, 128);
  s.cluster.device = "h100-sxm-80g";
  s.cluster.network.inter_node.gbits_per_nic = 400;
  s.framework = Framework::kPytorch;
  s.precision.param = s.precision.compute = Precision::kBf16;
  s.model.hidden = 4096;
  s.model.heads = s.model.kv_heads = 32;
  s.model.head_dim = 128;
  s.model.ffn = 14336;
  s.model.layers = 8;
  s.model.seq_len = 4096;
  s.batch = {.micro = 1, .accumulate = 1};
  s.parallel.data.kind = DataParallelKind::kZero1;
  const Plan even = Compile(s);
  s.cluster.jitter = 0.02;
  const Plan plan = Compile(s);
  const auto model = MakeProfileCostModel(*profile, plan);
  const Duration base = Predict(even, *model, {})->p50;
  const Duration folded = MedianOf(*model, plan, true), unfolded = MedianOf(*model, plan, false);
  EXPECT_GT(folded, base);
  EXPECT_NEAR(folded / unfolded, 1, 0.005) << base.picoseconds();
}

}  // namespace
}  // namespace windtunnel
