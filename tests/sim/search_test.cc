#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include "plan/plan.h"
#include "sim/search/pareto.h"
#include "sim/search/space.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario OnEightDevices() {
  Scenario s = TinyGpt(8);
  s.model.layers = 8;
  s.batch = {.micro = 2, .accumulate = 4};  // 64 sequences a step
  s.search.emplace();
  return s;
}

TEST(SearchSpace, EveryConfigurationKeepsTheGlobalBatchAndTheDevices) {
  Scenario s = OnEightDevices();
  s.search->tensor = {1, 2, 4};
  s.search->pipeline = {1, 2, 4, 8};
  s.search->virtual_stages = {1, 2};
  s.search->micro = {1, 2, 4, 3};
  const SearchSpace space = EnumerateSpace(s).value();
  EXPECT_EQ(space.combinations, 3 * 4 * 2 * 4);
  int64_t illegal = 0;
  for (const auto& [reason, count] : space.illegal) illegal += count;
  EXPECT_EQ(static_cast<int64_t>(space.legal.size()) + illegal, space.combinations);
  for (const Configuration& c : space.legal) {
    EXPECT_EQ(c.devices(), 8) << Describe(c);
    EXPECT_EQ(c.micro * c.accumulate * c.data, 64) << Describe(c);
    EXPECT_EQ(c.virtual_stages > 1, c.schedule == "interleaved") << Describe(c);
    EXPECT_TRUE(CompilePlan(ScenarioOf(s, c))) << Describe(c);
  }
}

// Encoders and relative positions stay in one stage, whose layers are not given to several.
TEST(SearchSpace, EncodersHaveNoPipelines) {
  Scenario s = OnEightDevices();
  s.model.encoder = EncoderSpec{.layers = 3, .seq_len = 24};
  s.search->tensor = {1, 2};
  s.search->pipeline = {1, 2, 4, 8};
  s.search->uneven = {true};
  const SearchSpace space = EnumerateSpace(s).value();
  EXPECT_EQ(space.legal.size(), 2);
  for (const Configuration& c : space.legal) EXPECT_TRUE(CompilePlan(ScenarioOf(s, c))) << Describe(c);
  EXPECT_TRUE(
      space.illegal.contains("model.encoder or position: relative, with a pipeline or context ranks"));
}

// What is within Megatron-Core's CUDA graphs is not recomputed, and one graph of all passes has no pipeline.
TEST(SearchSpace, GraphsLimitRecomputation) {
  Scenario s = OnEightDevices();
  s.cluster.device = "h100-sxm-80g";
  s.framework = Framework::kMegatronCore;
  s.run.cuda_graphs = true;
  s.search->recompute = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  s.search->pipeline = {1, 2};
  const auto recomputed = [&] {
    std::set<std::pair<int64_t, Recompute>> legal;
    const SearchSpace space = EnumerateSpace(s).value();
    for (const Configuration& c : space.legal) {
      EXPECT_TRUE(CompilePlan(ScenarioOf(s, c))) << Describe(c);
      legal.insert({c.pipeline, c.recompute});
    }
    return legal;
  };
  using Legal = std::set<std::pair<int64_t, Recompute>>;
  constexpr Recompute kNone = Recompute::kNone, kSelective = Recompute::kSelective;
  s.run.cuda_graph_scope = {CudaGraphScope::kMlp};
  EXPECT_EQ(recomputed(), (Legal{{1, kNone}, {1, kSelective}, {2, kNone}, {2, kSelective}}));
  s.search->activation_offload = {true, false};
  EXPECT_EQ(recomputed(), (Legal{{1, kNone}, {1, kSelective}, {2, kNone}, {2, kSelective}}));
  s.search->activation_offload.clear();
  s.run.cuda_graph_scope.clear();
  EXPECT_EQ(recomputed(), (Legal{{1, kNone}, {1, kSelective}, {2, kNone}, {2, kSelective}}));
  s.run.cuda_graph_scope = {CudaGraphScope::kFullIteration};
  EXPECT_EQ(recomputed(), (Legal{{1, kNone}, {1, kSelective}, {1, Recompute::kFull}}));
}

// Tensor ranks and context ranks share the groups of heads.
TEST(SearchSpace, StateSpacesSplitTheirGroups) {
  Scenario s = OnEightDevices();
  s.model.mamba = MambaSpec{.pattern = "M-*-", .state = 4, .head_dim = 8, .heads = 8, .groups = 2};
  s.model.heads = s.model.kv_heads = 4;
  s.model.head_dim = 8;
  s.search->tensor = {1, 2, 4};
  s.search->recompute = {Recompute::kNone, Recompute::kFull, Recompute::kSelectiveOp};
  const SearchSpace space = EnumerateSpace(s).value();
  EXPECT_EQ(space.legal.size(), 4);
  for (const Configuration& c : space.legal) EXPECT_TRUE(CompilePlan(ScenarioOf(s, c))) << Describe(c);
  EXPECT_TRUE(space.illegal.contains("tensor does not divide model.mamba.groups"));
  s.model.attention = AttentionKind::kFlash;
  s.search->context = {1, 2};
  EXPECT_TRUE(
      EnumerateSpace(s).value().illegal.contains("context x tensor does not divide model.mamba.groups"));
  EXPECT_TRUE(space.illegal.contains("model.mamba, with recompute: selective_op"));
}

// A key is named in the reason only where the scenario gives it.
TEST(SearchSpace, BlamesTheWidthThatRanksDoNotDivide) {
  Scenario s = OnEightDevices();
  s.model.ffn = 127;
  s.search->tensor = {1, 2};
  EXPECT_TRUE(
      EnumerateSpace(s).value().illegal.contains("tensor does not divide heads, kv_heads, ffn and vocab"));
  s.model.ffn = 128;
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .first_dense = 1, .dense_ffn = 127};
  EXPECT_TRUE(EnumerateSpace(s).value().illegal.contains("tensor does not divide model.experts.dense_ffn"));
}

// 2 heads are shared by at most 2 ranks; 3 ranks do not divide 8 devices.
TEST(SearchSpace, SaysWhyCombinationsAreNotLegal) {
  Scenario s = OnEightDevices();
  s.search->tensor = {1, 3, 4};
  const SearchSpace space = EnumerateSpace(s).value();
  ASSERT_EQ(space.legal.size(), 1u);
  EXPECT_EQ(space.illegal.at("tensor does not divide heads, kv_heads, ffn and vocab"), 1);
  EXPECT_EQ(space.illegal.at("tensor x pipeline x context does not divide the devices"), 1);
}

TEST(SearchSpace, RefusesWhatHasNoNumbers) {
  Scenario s = OnEightDevices();
  s.search->data = s.search->tensor = s.search->pipeline = {1 << 20};
  s.search->context = {16};
  for (const std::vector<int64_t>& range : {std::vector<int64_t>{}, {8}}) {
    s.search->devices = range;
    const auto devices = EnumerateSpace(s);
    ASSERT_FALSE(devices);
    EXPECT_NE(devices.error().message.find("there are too many devices"), std::string::npos);
  }
  s.search = SearchSpec{};
  s.search->pipeline = {2};
  s.batch.accumulate = 1'000'000'000;
  const auto actions = EnumerateSpace(s);
  ASSERT_FALSE(actions);
  EXPECT_NE(actions.error().message.find("16 million actions"), std::string::npos);
}

// They count where blocks are recomputed as a whole, and up to the layers of a stage.
TEST(SearchSpace, RecomputedLayersAreCountedWhereTheyMatter) {
  Scenario s = OnEightDevices();
  s.model.layers = 8;
  s.search->pipeline = {1, 2};
  s.search->recompute = {Recompute::kNone, Recompute::kFull};
  s.search->recompute_layers = {0, 2, 4};
  const SearchSpace space = EnumerateSpace(s).value();
  std::set<std::tuple<int64_t, Recompute, int64_t>> found;
  for (const Configuration& c : space.legal) {
    EXPECT_EQ(ScenarioOf(s, c).recompute_layers, c.recompute_layers);
    found.insert({c.pipeline, c.recompute, c.recompute_layers});
  }
  constexpr auto kNone = Recompute::kNone, kFull = Recompute::kFull;
  EXPECT_EQ(found, (std::set<std::tuple<int64_t, Recompute, int64_t>>{{1, kNone, 0},
                                                                      {1, kFull, 0},
                                                                      {1, kFull, 2},
                                                                      {1, kFull, 4},
                                                                      {2, kNone, 0},
                                                                      {2, kFull, 0},
                                                                      {2, kFull, 2}}));
}

// Not with DataParallel, and not where blocks of two micro-batches take turns.
TEST(SearchSpace, ActivationsAreOnTheHostWhereTheyMayBe) {
  Scenario s = OnEightDevices();
  s.model.layers = 8;
  s.search->pipeline = {1, 2};
  s.search->kind = {DataParallelKind::kDp, DataParallelKind::kFsdp};
  s.search->activation_offload = {false, true};
  s.activation_offload_layers = 3;
  s.activation_offload = true;
  std::set<std::tuple<int64_t, DataParallelKind, bool>> found;
  const SearchSpace space = EnumerateSpace(s).value();
  for (const Configuration& c : space.legal) {
    const Scenario scenario = ScenarioOf(s, c);
    EXPECT_EQ(scenario.activation_offload, c.activation_offload);
    EXPECT_EQ(scenario.activation_offload_layers, c.activation_offload ? 3 : 0);
    EXPECT_TRUE(CompilePlan(scenario)) << Describe(c);
    found.insert({c.pipeline, c.kind, c.activation_offload});
  }
  using enum DataParallelKind;
  EXPECT_EQ(found,
            (std::set<std::tuple<int64_t, DataParallelKind, bool>>{
                {1, kDp, false}, {1, kFsdp, false}, {1, kFsdp, true}, {2, kFsdp, false}, {2, kFsdp, true}}));
}

// Five layers are all of a stage of three, not of one of five, whose stage has seven.
TEST(SearchSpace, RecomputedLayersAreAllWhereTheyAreThoseOfTheLargestStage) {
  Scenario s = OnEightDevices();
  s.model.layers = 10;
  s.recompute = Recompute::kFull;
  s.parallel.data.size = 4;
  s.parallel.pipeline = {.size = 2, .schedule = "1f1b", .balance = {3, 7}};
  const auto found = [&](std::vector<int64_t> range) {
    s.search->recompute_layers = std::move(range);
    std::vector<int64_t> values;
    const SearchSpace space = EnumerateSpace(s).value();
    for (const Configuration& c : space.legal) values.push_back(c.recompute_layers);
    return values;
  };
  EXPECT_EQ(found({0, 4, 5, 7, 9}), (std::vector<int64_t>{0, 4, 5}));
  EXPECT_EQ(found({4, 8, 7, 9}), (std::vector<int64_t>{4, 7})) << "without 0 the least number stands for all";
}

// Megatron gives the embedding and the head stages of their own where there are two stages more than layers.
// Multi-token prediction is alone in the stage before the last where the others divide the layers, else with
// layers.
TEST(SearchSpace, HeadsCanBeStages) {
  Scenario s = OnEightDevices();
  s.model = TinyLlama().model;
  s.model.layers = 6;
  s.model.mtp.emplace();
  s.parallel.pipeline.mtp = MtpStage::kBeforeLast;
  s.search->pipeline = {1, 2, 4, 8};
  const SearchSpace space = EnumerateSpace(s).value();
  std::map<int64_t, std::vector<int64_t>> balances;
  for (const Configuration& c : space.legal) balances[c.pipeline] = c.balance;
  const std::map<int64_t, std::vector<int64_t>> expected = {
      {1, {}}, {2, {6, 0}}, {4, {3, 3, 0, 0}}, {8, {1, 1, 1, 1, 1, 1, 0, 0}}};
  EXPECT_EQ(balances, expected);
}

TEST(SearchSpace, EndsOfThePipelineCanBeStages) {
  Scenario s = OnEightDevices();
  s.framework = Framework::kMegatronCore;
  s.model.layers = 6;
  s.search->pipeline = {8};
  s.search->uneven = {true};
  const SearchSpace space = EnumerateSpace(s).value();
  ASSERT_EQ(space.legal.size(), 1u);
  EXPECT_EQ(space.legal[0].balance, (std::vector<int64_t>{0, 1, 1, 1, 1, 1, 1, 0}));
}

// The scenario's virtual stages are those of its own pipeline.
TEST(SearchSpace, ASingleStageIsTriedBesideVirtualStages) {
  Scenario s = OnEightDevices();
  s.parallel.data.size = 4;
  s.parallel.pipeline = {.size = 2, .schedule = "interleaved", .virtual_stages = 2};
  s.search->pipeline = {1, 2};
  std::set<std::pair<int64_t, int64_t>> found;
  const SearchSpace space = EnumerateSpace(s).value();
  for (const Configuration& c : space.legal) found.insert({c.pipeline, c.virtual_stages});
  EXPECT_EQ(found, (std::set<std::pair<int64_t, int64_t>>{{1, 1}, {2, 2}}));
}

TEST(SearchSpace, RangesOfDevicesMakeNodes) {
  Scenario s = OnEightDevices();
  s.cluster.devices_per_node = 4;
  s.cluster.nodes = 2;
  s.search->devices = {2, 4, 6, 16};
  const SearchSpace space = EnumerateSpace(s).value();
  std::set<std::tuple<int64_t, int64_t, int64_t>> found;
  for (const Configuration& c : space.legal) found.insert({c.data, c.nodes, c.devices_per_node});
  EXPECT_EQ(found, (std::set<std::tuple<int64_t, int64_t, int64_t>>{{2, 1, 2}, {4, 1, 4}, {16, 4, 4}}));
}

TEST(SearchSpace, WhatHasNoEffectCountsOnce) {
  Scenario s = OnEightDevices();
  s.search->overlap = {true, false};
  s.search->devices = {1, 8};
  EXPECT_EQ(EnumerateSpace(s).value().legal.size(), 3u);  // one device has nothing to overlap
}

// With one rank, or without sequence, there is nothing to overlap: of 2 x 2 x 2 combinations, four are left.
TEST(SearchSpace, TensorOverlapIsARange) {
  Scenario s = OnEightDevices();
  s.search->tensor = {1, 2};
  s.search->sequence = {false, true};
  s.search->tensor_overlap = {false, true};
  const SearchSpace space = EnumerateSpace(s).value();
  ASSERT_EQ(space.legal.size(), 4u);
  int overlapped = 0;
  for (const Configuration& c : space.legal) {
    EXPECT_TRUE(CompilePlan(ScenarioOf(s, c))) << Describe(c);
    overlapped += ScenarioOf(s, c).parallel.tensor.overlap;
    EXPECT_EQ(Describe(c).find("in parts") != std::string::npos, ScenarioOf(s, c).parallel.tensor.overlap);
  }
  EXPECT_EQ(overlapped, 1);
}

// One context rank has no kind.
TEST(SearchSpace, ContextKindIsARange) {
  Scenario s = OnEightDevices();
  s.model.attention = AttentionKind::kFlash;
  s.search->context = {1, 2};
  s.search->context_kind = {ContextKind::kRing, ContextKind::kAllGather, ContextKind::kUlysses};
  const SearchSpace space = EnumerateSpace(s).value();
  std::set<std::pair<int64_t, ContextKind>> found;
  for (const Configuration& c : space.legal) {
    const Scenario scenario = ScenarioOf(s, c);
    EXPECT_TRUE(CompilePlan(scenario)) << Describe(c);
    found.insert({c.context, scenario.parallel.context.kind});
    EXPECT_EQ(Describe(c).find("(ulysses)") != std::string::npos,
              scenario.parallel.context.size > 1 && scenario.parallel.context.kind == ContextKind::kUlysses);
  }
  EXPECT_EQ(found, (std::set<std::pair<int64_t, ContextKind>>{{1, ContextKind::kRing},
                                                              {2, ContextKind::kRing},
                                                              {2, ContextKind::kAllGather},
                                                              {2, ContextKind::kUlysses}}));
}

TEST(SearchSpace, WindowsExcludeARingAlone) {
  Scenario s = OnEightDevices();
  s.model.attention = AttentionKind::kFlash;
  s.model.sliding_window = SlidingWindowSpec{.tokens = s.model.seq_len / 4};
  s.search->context = {2};
  s.search->context_kind = {ContextKind::kRing, ContextKind::kAllGather, ContextKind::kUlysses};
  std::set<ContextKind> found;
  const SearchSpace space = EnumerateSpace(s).value();
  for (const Configuration& c : space.legal) found.insert(c.context_kind);
  EXPECT_EQ(found, (std::set<ContextKind>{ContextKind::kAllGather, ContextKind::kUlysses}));
}

// Only what is sharded can be offloaded, and parameters only by FSDP.
TEST(SearchSpace, OffloadIsARange) {
  Scenario s = OnEightDevices();
  s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1, DataParallelKind::kFsdp};
  s.search->offload = {Offload::kNone, Offload::kOptimizer, Offload::kParam};
  std::set<std::pair<DataParallelKind, Offload>> found;
  const SearchSpace space = EnumerateSpace(s).value();
  for (const Configuration& c : space.legal) {
    const Scenario scenario = ScenarioOf(s, c);
    EXPECT_TRUE(CompilePlan(scenario)) << Describe(c);
    found.insert({scenario.parallel.data.kind, scenario.parallel.data.offload});
    EXPECT_EQ(Describe(c).find("offload param") != std::string::npos, c.offload == Offload::kParam);
  }
  EXPECT_EQ(found,
            (std::set<std::pair<DataParallelKind, Offload>>{{DataParallelKind::kDdp, Offload::kNone},
                                                            {DataParallelKind::kZero1, Offload::kNone},
                                                            {DataParallelKind::kZero1, Offload::kOptimizer},
                                                            {DataParallelKind::kFsdp, Offload::kNone},
                                                            {DataParallelKind::kFsdp, Offload::kOptimizer},
                                                            {DataParallelKind::kFsdp, Offload::kParam}}));
}

// Without several expert ranks nobody sends tokens, without several tensor ranks nobody splits experts.
TEST(SearchSpace, HowTokensComeToExpertsIsARange) {
  Scenario s = OnEightDevices();
  s.model.experts = ExpertsSpec{.count = 8, .top_k = 2, .capacity_factor = 0};
  s.framework = Framework::kMegatronCore;
  s.parallel.tensor.sequence = true;
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.search->tensor = {1, 2};
  s.search->expert = {1, 4};
  s.search->expert_tensor = {0, 1};
  s.search->dispatcher = {ExpertDispatcher::kAllToAll, ExpertDispatcher::kDeepEp};
  s.search->expert_overlap = {false, true};
  const SearchSpace space = EnumerateSpace(s).value();
  EXPECT_EQ(space.combinations, 24);  // with one tensor rank, 0 and 1 mean the same
  std::set<std::tuple<int64_t, int64_t, bool, ExpertDispatcher, bool>> found;
  std::set<std::string> words;
  for (const Configuration& c : space.legal) {
    const Scenario scenario = ScenarioOf(s, c);
    const ParallelSpec& parallel = scenario.parallel;
    EXPECT_TRUE(CompilePlan(scenario)) << Describe(c);
    found.insert({c.tensor, c.expert, parallel.TensorRanksHaveExperts(), parallel.expert.dispatcher,
                  parallel.expert.overlap});
    words.insert(Describe(c));
  }
  // One tensor rank: 1 without expert ranks, 2 x 2 with them. Two tensor ranks: 1 without expert ranks; with
  // them 2 x 2 for whole experts, and 2 for split ones (not by DeepEP).
  EXPECT_EQ(space.legal.size(), 12u) << fmt::format("{}", fmt::join(words, "\n"));
  EXPECT_EQ(found.size(), space.legal.size());
  EXPECT_EQ(words.size(), space.legal.size());
  EXPECT_TRUE(
      words.contains("tensor 2 x pipeline 1 x data 4, experts over 4 (deepep, tensor 1, overlap), micro 2 x "
                     "8, zero1, sequence"))
      << fmt::format("{}", fmt::join(words, "\n"));
}

// 0 means as many ranks as the tensor axis has, so it is the same as that number; with one tensor rank, as 1.
TEST(SearchSpace, RanksThatShareAnExpertCountOnce) {
  Scenario s = OnEightDevices();
  s.model.experts = ExpertsSpec{.count = 8, .top_k = 2, .capacity_factor = 1.25};
  s.parallel.tensor.sequence = true;
  s.parallel.expert.size = 2;
  s.search->tensor = {1, 2};
  s.search->expert_tensor = {2, 1, 0};
  const SearchSpace space = EnumerateSpace(s).value();
  std::set<std::pair<int64_t, bool>> found;
  for (const Configuration& c : space.legal)
    found.insert({c.tensor, ScenarioOf(s, c).parallel.TensorRanksHaveExperts()});
  EXPECT_EQ(space.legal.size(), 3u);
  EXPECT_EQ(found, (std::set<std::pair<int64_t, bool>>{{1, false}, {2, false}, {2, true}}));
}

// Pairs of passes need a schedule that has them, and weight gradients are delayed only in pairs.
TEST(SearchSpace, TurnsComeWithTheirSchedule) {
  Scenario s = OnEightDevices();
  s.model.experts = ExpertsSpec{.count = 8, .top_k = 2, .capacity_factor = 1.25};
  s.parallel.data.size = 4;
  s.parallel.pipeline = {.size = 2, .schedule = "interleaved", .virtual_stages = 2};
  s.parallel.expert = {.size = 4, .overlap = true, .delay_wgrad = true};
  s.search->schedule = {"looped_bfs", "interleaved"};
  s.search->expert_overlap = {true, false};
  std::set<std::pair<std::string, bool>> found;
  const SearchSpace space = EnumerateSpace(s).value();
  for (const Configuration& c : space.legal) {
    const Scenario scenario = ScenarioOf(s, c);
    found.insert({c.schedule, c.expert_overlap});
    EXPECT_EQ(scenario.parallel.expert.delay_wgrad, c.expert_overlap);
    EXPECT_TRUE(CompilePlan(scenario)) << Describe(c);
  }
  EXPECT_EQ(found, (std::set<std::pair<std::string, bool>>{
                       {"looped_bfs", false}, {"interleaved", false}, {"interleaved", true}}));
}

// A schedule file determines how many stages there are.
TEST(SearchSpace, AFilesStagesAreThoseOfTheConfiguration) {
  const std::string path = testing::TempDir() + "two_stages_a_rank.csv";
  std::ofstream(path) << "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n";
  Scenario s = OnEightDevices();
  s.batch = {.micro = 16, .accumulate = 1};
  s.parallel.data.size = 4;
  s.parallel.pipeline = {.size = 2, .schedule = path};
  for (const std::vector<int64_t>& ranges : {std::vector<int64_t>{1, 2, 4}, {4, 2, 1}}) {
    s.search->virtual_stages = ranges;
    const SearchSpace space = EnumerateSpace(s).value();
    ASSERT_EQ(space.legal.size(), 1u);
    EXPECT_EQ(space.legal[0].virtual_stages, 2);
    EXPECT_EQ(space.illegal.at("the schedule does not run with so many micro-batches and stages"), 2);
  }
}

// DataParallel is one process with a thread for each device, so it is confined to one node.
TEST(SearchSpace, DataParallelIsOfOneNode) {
  Scenario s = OnEightDevices();
  s.parallel.data.kind = DataParallelKind::kDp;
  s.parallel.data.size = 8;
  s.cluster.devices_per_node = 8;
  s.search->devices = {8, 16};
  const SearchSpace space = EnumerateSpace(s).value();
  ASSERT_EQ(space.legal.size(), 1u);
  EXPECT_EQ(space.legal[0].devices(), 8);
  EXPECT_EQ(space.illegal.at("kind: dp goes with nothing else"), 1);
}

// Only hybrid sharding has shard groups; in a single group it is sharding over all ranks.
TEST(SearchSpace, ShardGroupsCountWhereThereAreSome) {
  Scenario s = OnEightDevices();
  s.search->kind = {DataParallelKind::kFsdp};
  s.search->data = {8};
  s.search->micro = {1};
  s.search->sharding = {Sharding::kFullShard, Sharding::kHybridShard};
  s.search->shard_size = {2, 4, 8};
  const SearchSpace space = EnumerateSpace(s).value();
  std::set<std::pair<Sharding, int64_t>> found;
  for (const Configuration& c : space.legal) found.insert({c.sharding, c.shard_size});
  EXPECT_EQ(found, (std::set<std::pair<Sharding, int64_t>>{
                       {Sharding::kFullShard, 0}, {Sharding::kHybridShard, 2}, {Sharding::kHybridShard, 4}}));
  for (const Configuration& c : space.legal)
    EXPECT_EQ(Describe(c).find("in groups") != std::string::npos, c.sharding == Sharding::kHybridShard);
}

// Gradients are reduced over context ranks, too.
TEST(SearchSpace, OverlapIsARangeWithContextRanksAlone) {
  Scenario s = OnEightDevices();
  s.model.attention = AttentionKind::kFlash;
  s.parallel.data.kind = DataParallelKind::kDdp;
  s.parallel.data.size = 8;
  s.search->context = {8};
  s.search->overlap = {true, false};
  EXPECT_EQ(EnumerateSpace(s).value().legal.size(), 2u);
}

// ZB-V has two stages a rank, and no other number.
TEST(SearchSpace, SchedulesHaveTheStagesThatTheyHave) {
  Scenario s = OnEightDevices();
  s.parallel.data.kind = DataParallelKind::kDdp;
  s.search->pipeline = {2};
  s.search->schedule = {"zb_v"};
  s.search->virtual_stages = {2, 4};
  const SearchSpace space = EnumerateSpace(s).value();
  ASSERT_EQ(space.legal.size(), 1u);
  EXPECT_EQ(space.legal[0].virtual_stages, 2);
}

TEST(SearchSpace, SequenceNeedsTokensForEveryTensorRank) {
  Scenario s = OnEightDevices();
  s.model.heads = s.model.kv_heads = 8;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.seq_len = 12;
  s.search->tensor = {8};
  s.search->micro = {1, 2};
  s.search->sequence = {true};
  s.search->data = {1};
  const SearchSpace space = EnumerateSpace(s).value();
  for (const Configuration& c : space.legal) EXPECT_TRUE(CompilePlan(ScenarioOf(s, c))) << Describe(c);
  EXPECT_EQ(space.illegal.at("sequence: tensor does not divide a rank's tokens"), 1);
  EXPECT_EQ(space.legal.size(), 1u);  // two sequences of 12 tokens
}

// Without sequence parallelism, no tokens go around the tensor ranks, so there is nothing to overlap.
TEST(SearchSpace, TensorRanksOverlapWhereTheySplitTokens) {
  Scenario s = OnEightDevices();
  s.parallel.tensor = {.size = 2, .sequence = true, .overlap = true};
  s.search->sequence = {true, false};
  const SearchSpace space = EnumerateSpace(s).value();
  ASSERT_EQ(space.legal.size(), 2u);
  for (const Configuration& c : space.legal) {
    const Scenario scenario = ScenarioOf(s, c);
    EXPECT_EQ(scenario.parallel.tensor.overlap, c.sequence);
    EXPECT_TRUE(CompilePlan(scenario)) << Describe(c);
  }
}

TEST(SearchSpace, TakesEachValueOfARangeOnce) {
  Scenario s = OnEightDevices();
  s.search->tensor = {1, 1, 2, 1};
  EXPECT_EQ(EnumerateSpace(s).value().combinations, 2);
  s.search->tensor.clear();
  s.search->data = {8, 8};
  s.search->accumulate = {4, 4};
  s.search->schedule = {"1f1b", "1f1b"};
  EXPECT_EQ(EnumerateSpace(s).value().combinations, 1);
}

// No two configurations of a search have the same description.
TEST(SearchSpace, DescribesWhatItChooses) {
  Scenario s = OnEightDevices();
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.search->shard_size = {1, 2, 4};
  std::set<std::string> words;
  const SearchSpace space = EnumerateSpace(s).value();
  for (const Configuration& c : space.legal) words.insert(Describe(c));
  EXPECT_EQ(words.size(), 3u) << fmt::format("{}", fmt::join(words, "\n"));
  Configuration c;
  c.expert = 4;
  EXPECT_NE(Describe(c).find(", experts over 4"), std::string::npos) << Describe(c);
}

TEST(SearchSpace, AScenarioWithoutRangesIsRefused) {
  const auto space = EnumerateSpace(TinyGpt());
  ASSERT_FALSE(space);
  EXPECT_EQ(space.error().kind, ErrorKind::kInvalidInput);
}

TEST(ParetoFront, HoldsWhatNoneIsBetterThan) {
  const Choice fast{0, Seconds(1), Bytes(100), 8}, slow{1, Seconds(2), Bytes(100), 8};
  const Choice small{2, Seconds(3), Bytes(50), 8}, few{3, Seconds(4), Bytes(100), 4};
  const Choice same{4, Seconds(1), Bytes(100), 8};
  std::vector<int64_t> ids;
  for (const Choice& choice : ParetoFront({few, same, slow, small, fast})) ids.push_back(choice.id);
  EXPECT_EQ(ids, (std::vector<int64_t>{0, 2, 3}));
}

}  // namespace
}  // namespace windtunnel
