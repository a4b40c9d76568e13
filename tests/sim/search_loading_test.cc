// A configuration of a search is what the loader makes of the same values, and is legal where the loader
// accepts them.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>

#include "plan/plan.h"
#include "scenarios/difference.h"
#include "scenarios/load.h"
#include "sim/search/space.h"

namespace windtunnel {
namespace {

constexpr char kModel[] =
    "model: {layers: 8, hidden: 64, heads: 4, vocab: 128, seq_len: 32, tie_embeddings: false}\n"
    "precision: {param: bf16, reduce: fp32}\n";
constexpr char kEight[] =
    "cluster: {device: a100-sxm-80g, devices_per_node: 8, network: {intra_node: nvlink3}}\n";

Scenario Loaded(const std::string& text, const std::vector<Override>& overrides = {}) {
  auto scenario = ParseScenario(text, "s.yaml", "/", overrides);
  if (!scenario) ADD_FAILURE() << scenario.error().message << "\nin\n" << text;
  return scenario.value_or(Scenario{});
}

// The search space of `text`. Expects that every configuration can be loaded and compiled.
SearchSpace SpaceOf(const std::string& text) {
  const Scenario base = Loaded(text);
  auto found = EnumerateSpace(base);
  if (!found) ADD_FAILURE() << found.error().message;
  SearchSpace space = found.value_or(SearchSpace{});
  for (const Configuration& c : space.legal) {
    const Scenario made = ScenarioOf(base, c);
    Scenario loaded = Loaded(text, OverridesThatMake(made, base).value());
    loaded.search.reset();
    EXPECT_EQ(ResolvedYaml(loaded), ResolvedYaml(made)) << Describe(c);
    const auto plan = CompilePlan(made);
    EXPECT_TRUE(plan) << Describe(c) << ": " << plan.error().message;
  }
  return space;
}

int64_t Illegal(const SearchSpace& space, const std::string& part) {
  int64_t sum = 0;
  for (const auto& [reason, count] : space.illegal)
    if (reason.find(part) != std::string::npos) sum += count;
  return sum;
}

TEST(SearchLoading, ManyConfigurationsAreWhatTheLoaderMakesOfThem) {
  const std::string batch = "batch: {micro: 2, accumulate: 4}\n";
  const std::string own[] = {
      "parallel: {data: {size: 8}}\n",
      "parallel: {data: {size: 8, kind: fsdp, sharding: hybrid_shard, shard_size: 4, version: 1}}\n",
      "parallel: {data: {size: 8, kind: fsdp, sharding: shard_grad_op}}\n",
      "parallel: {data: {size: 4, kind: zero1}, pipeline: {size: 2, virtual_stages: 2, schedule: "
      "interleaved, "
      "balance: [1, 3, 3, 1]}}\n",
      "parallel: {data: {size: 4, kind: ddp}, pipeline: {size: 2, schedule: zb_v}}\n",
      "parallel: {data: {size: 4, kind: ddp, sync: every_micro_batch}, tensor: {size: 2, sequence: true}}\n"};
  const std::string ranges[] = {
      "search: {kind: [none, ddp, zero1, zero2, zero3, fsdp], sharding: [full_shard, shard_grad_op, "
      "hybrid_shard, "
      "hybrid_shard_zero2, no_shard], pipeline: [1, 2, 4]}\n",
      "search: {pipeline: [1, 2], virtual_stages: [1, 2], schedule: [gpipe, 1f1b, interleaved, zb_v], "
      "tensor: [1, 2, 4], sequence: [false, true], micro: [1, 2, 4]}\n",
      "search: {tensor: [1, 2, 4, 8], pipeline: [1, 2, 8], schedule: [1f1b, zb_v, dualpipe_v]}\n",
      "search: {devices: [1, 2, 4, 8, 16], overlap: [true, false], recompute: [none, full]}\n",
      "search: {shard_size: [2, 4, 8], sharding: [full_shard, hybrid_shard], kind: [zero1, fsdp, dp]}\n"};
  size_t legal = 0;
  for (const std::string& parallel : own)
    for (const std::string& range : ranges)
      legal += SpaceOf(kModel + batch + parallel + kEight + range).legal.size();
  EXPECT_GT(legal, 400u);
}

// Without a given kind, nothing says that two ranks do not reduce.
TEST(SearchLoading, AKindThatNobodyGaveFollowsTheReplicas) {
  const std::string one = std::string(kModel) + "batch: {micro: 8}\ncluster: {device: a100-sxm-80g}\n";
  const SearchSpace space = SpaceOf(one + "search: {data: [1, 2], micro: [4, 8]}\n");
  std::set<std::pair<int64_t, DataParallelKind>> found;
  for (const Configuration& c : space.legal) found.insert({c.data, c.kind});
  EXPECT_EQ(found, (std::set<std::pair<int64_t, DataParallelKind>>{{1, DataParallelKind::kNone},
                                                                   {2, DataParallelKind::kDdp}}));
  const std::string none = one + "parallel: {data: {kind: none}}\n";
  EXPECT_EQ(Illegal(SpaceOf(none + "search: {data: [1, 2], micro: [4, 8]}\n"), "kind: none"), 1);
}

// A shard size that is derived from the nodes (hybrid sharding within them) changes with the nodes.
TEST(SearchLoading, AShardSizeThatNobodyGaveFollowsTheNodes) {
  const std::string text = std::string(kModel) + "batch: {micro: 1, accumulate: 2}\n" +
                           "parallel: {data: {size: 16, kind: fsdp, sharding: hybrid_shard}}\n" +
                           "cluster: {device: a100-sxm-80g, nodes: 2, devices_per_node: 8}\n";
  std::set<std::pair<int64_t, int64_t>> found;
  for (const Configuration& c : SpaceOf(text + "search: {devices: [4, 16]}\n").legal)
    found.insert({c.devices(), c.shard_size});
  EXPECT_EQ(found, (std::set<std::pair<int64_t, int64_t>>{{4, 4}, {16, 8}}));
}

// The scenario's balance is used where a configuration has as many stages.
TEST(SearchLoading, ABalanceStandsForItsStages) {
  const std::string text = std::string(kModel) + "batch: {micro: 2, accumulate: 4}\n" +
                           "parallel: {data: {size: 4}, pipeline: {size: 2, balance: [3, 5]}}\n" + kEight;
  const Scenario base = Loaded(text + "search: {pipeline: [1, 2, 4]}\n");
  for (const Configuration& c : SpaceOf(text + "search: {pipeline: [1, 2, 4]}\n").legal) {
    const std::vector<int64_t> balance = ScenarioOf(base, c).parallel.pipeline.balance;
    if (c.pipeline == 1) {
      EXPECT_TRUE(balance.empty());
    }
    if (c.pipeline == 2) {
      EXPECT_EQ(balance, (std::vector<int64_t>{3, 5}));
    }
    if (c.pipeline == 4) {
      EXPECT_EQ(balance, (std::vector<int64_t>{2, 2, 2, 2}));
    }
  }
}

// With `uneven`, layers are distributed as without a balance. Where that is even anyway, the configuration
// counts once.
TEST(SearchLoading, UnevenStagesAreBalancedAsWithoutABalance) {
  const std::string text =
      "model: {layers: 10, hidden: 64, heads: 4, vocab: 128, seq_len: 32}\n"
      "batch: {micro: 2, accumulate: 4}\nframework: megatron_core\n"
      "parallel: {data: {size: 8}}\n" +
      std::string(kEight) + "search: {pipeline: [1, 2, 4, 8], virtual_stages: [1, 2]";
  std::map<std::pair<int64_t, bool>, std::vector<int64_t>> balances;  // by stages
  const SearchSpace space = SpaceOf(text + ", uneven: [false, true]}\n");
  for (const Configuration& c : space.legal) {
    const Scenario made = ScenarioOf(Loaded(text + "}\n"), c);
    balances[{c.pipeline * c.virtual_stages, c.uneven}] = made.parallel.pipeline.balance;
  }
  EXPECT_EQ(balances, (std::map<std::pair<int64_t, bool>, std::vector<int64_t>>{
                          {{1, false}, {}},
                          {{2, false}, {5, 5}},
                          {{4, true}, {2, 3, 3, 2}},
                          {{8, true}, {1, 2, 2, 1, 1, 1, 1, 1}}}));
  EXPECT_EQ(Illegal(space, "uneven has no effect"), 2);
  EXPECT_EQ(Illegal(space, "more stages than the model"), 2);
  EXPECT_EQ(Illegal(space, "search.uneven is not true"), 4);
  for (const Configuration& c : SpaceOf(text + ", uneven: [true]}\n").legal) {
    EXPECT_TRUE(c.uneven);
    EXPECT_EQ(Describe(c).find(", layers 2 + 2 x 3 + 2,") != std::string::npos, c.balance.size() == 4)
        << Describe(c);
  }
}

TEST(SearchLoading, WhatTheLoaderRefusesIsNotLegal) {
  const std::string batch = "batch: {micro: 2, accumulate: 4}\n";
  const auto data = [&](const std::string& keys, const std::string& ranges) {
    return SpaceOf(kModel + batch + "parallel: {data: {size: 8, " + keys + "}}\n" + kEight + "search: {" +
                   ranges + "}\n");
  };
  // Gradients of 16 bits that share buckets of 32; ZeRO has no such views.
  const SearchSpace views = data("kind: zero1, gradient_as_bucket_view: true", "kind: [ddp, zero1]");
  EXPECT_EQ(Illegal(views, "gradient_as_bucket_view"), 1);
  EXPECT_EQ(views.legal.size(), 1u);
  EXPECT_EQ(Illegal(data("kind: fsdp, offload: param", "kind: [zero1, fsdp]"), "offload is 'param'"), 1);
  EXPECT_EQ(Illegal(data("kind: zero1, overlap_param_gather: true", "overlap: [true, false]"),
                    "overlap_param_gather"),
            1);
  EXPECT_EQ(Illegal(data("kind: fsdp, sync: every_micro_batch", "pipeline: [1, 2]"), "in a pipeline"), 1);
  const std::string slow =
      std::string(kModel) + batch + "parallel: {data: {size: 8}}\n" +
      "cluster: {device: a100-sxm-80g, devices_per_node: 8, straggler: {rank: 5, slowdown: 2}}\n";
  EXPECT_EQ(Illegal(SpaceOf(slow + "search: {devices: [4, 8]}\n"), "straggler.rank is 5"), 1);
}

// The scenario leaves the cluster's shape to the mesh, which may need another node.
TEST(SearchLoading, AClusterWithoutAShapeGrows) {
  const std::string text = std::string(kModel) +
                           "batch: {micro: 1, accumulate: 4}\nparallel: {data: {size: 2}}\n" +
                           "cluster: {device: a100-sxm-80g}\nsearch: {data: [2, 4]}\n";
  std::set<std::pair<int64_t, int64_t>> found;
  for (const Configuration& c : SpaceOf(text).legal) found.insert({c.nodes, c.devices_per_node});
  EXPECT_EQ(found, (std::set<std::pair<int64_t, int64_t>>{{1, 2}, {2, 2}}));
}

// Full sharding has no shard size, and DataParallel takes none.
TEST(SearchLoading, AShardSizeWithoutEffectCountsOnce) {
  const std::string text = std::string(kModel) + "batch: {micro: 2, accumulate: 1}\n" +
                           "parallel: {data: {size: 8, kind: fsdp}}\n" + kEight +
                           "search: {kind: [dp, ddp, zero1, fsdp], shard_size: [2, 4, 3]}\n";
  std::map<DataParallelKind, int> found;
  for (const Configuration& c : SpaceOf(text).legal) ++found[c.kind];
  EXPECT_EQ(found, (std::map<DataParallelKind, int>{{DataParallelKind::kDp, 1},
                                                    {DataParallelKind::kDdp, 1},
                                                    {DataParallelKind::kZero1, 2},
                                                    {DataParallelKind::kFsdp, 1}}));
}

// The file has two stages a rank, and the loader accepts it without virtual_stages.
TEST(SearchLoading, AFilesStagesAreFoundInIt) {
  const std::string path = testing::TempDir() + "loading_two_stages.csv";
  std::ofstream(path) << "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n";
  const std::string text = std::string(kModel) + "batch: {micro: 2, accumulate: 1}\n" +
                           "parallel: {data: {size: 4}, pipeline: {size: 2, schedule: " + path +
                           ", balance: [1, 2, 2, 3]}}\n" + kEight + "search: {kind: [ddp, zero1]}\n";
  const SearchSpace space = SpaceOf(text);
  ASSERT_EQ(space.legal.size(), 2u);
  EXPECT_EQ(ScenarioOf(Loaded(text), space.legal[0]).parallel.pipeline.balance,
            (std::vector<int64_t>{1, 2, 2, 3}));
}

TEST(SearchLoading, APathThatIsNotTextIsNoCrash) {
  Scenario base = Loaded(std::string(kModel) + kEight + "parallel: {data: {size: 8}}\n");
  base.name = "b\xff";
  Scenario made = base;
  made.batch.micro = 7;
  const auto same = OverridesThatMake(made, base);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->size(), 1u);
  made.parallel.pipeline.schedule = "/jos\xe9/a.csv";
  EXPECT_FALSE(OverridesThatMake(made, base));
}

TEST(SearchLoading, DataParallelHasNoExperts) {
  const std::string text =
      "model: {layers: 2, hidden: 64, heads: 4, vocab: 128, seq_len: 32, experts: {count: 4, top_k: 2}}\n"
      "batch: {micro: 2}\nparallel: {data: {size: 4, kind: dp}}\n"
      "cluster: {device: a100-sxm-80g, devices_per_node: 4}\n";
  EXPECT_EQ(Illegal(SpaceOf(text + "search: {expert: [1, 2]}\n"), "kind: dp goes with nothing else"), 1);
}

}  // namespace
}  // namespace windtunnel
