// When FSDP's programs gather and reduce, and the memory that follows from that.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "plan/fsdp_units.h"
#include "plan/plan.h"
#include "sim/role_memory.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// Blocks "blocks.0" and "blocks.1", and the root with everything else.
Scenario TwoBlocks(int version) {
  Scenario s = TinyGpt(2);
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.parallel.data.version = version;
  return s;
}

const Program& Steady(const Plan& plan) { return plan.roles[0].steady; }

// The steady step as a script: gathers "+0", reductions "-0", and a block's compute "F0", "B0" (first
// operators only).
std::string Script(const Program& program) {
  std::string script, last;
  auto add = [&](std::string word) {
    if (word != last) script += (script.empty() ? "" : " ") + word;
    last = word;
  };
  auto unit = [](const std::string& name) {
    return name == "root" ? std::string("r") : name.substr(name.size() - 1);
  };
  for (const Op& op : program.ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (collective != nullptr && collective->kind == CollectiveKind::kAllGather) add("+" + unit(op.name));
    if (collective != nullptr && collective->kind == CollectiveKind::kReduceScatter) add("-" + unit(op.name));
    if (op.stream != kComputeStream || op.layer < 0 || !op.name.starts_with("blocks.")) continue;
    if (std::holds_alternative<Gemm>(op.kind)) {
      add((op.phase == Phase::kForward ? "F" : "B") + std::to_string(op.layer));
    }
  }
  return script;
}

std::string ScriptWith(int version, Prefetch prefetch, int64_t forward = 0) {
  Scenario s = TwoBlocks(version);
  s.parallel.data.prefetch = prefetch;
  s.parallel.data.forward_prefetch = forward;
  return Script(Steady(*CompilePlan(s)));
}

TEST(Fsdp, GathersTheNextUnitBeforeThisOnesBackward) {
  // The root stays gathered after forward; its backward comes first and prefetches the last block.
  EXPECT_EQ(ScriptWith(2, Prefetch::kBackwardPre), "+r +0 F0 +1 F1 +1 +0 B1 -1 B0 -0 -r");
  EXPECT_EQ(ScriptWith(1, Prefetch::kBackwardPre), "+r +0 F0 +1 F1 +1 +0 B1 -1 B0 -0 -r");
}

TEST(Fsdp, BackwardPostGathersAfterTheComputationAndBeforeTheReduction) {
  EXPECT_EQ(ScriptWith(1, Prefetch::kBackwardPost), "+r +0 F0 +1 F1 +1 B1 +0 -1 B0 -0 -r");
}

TEST(Fsdp, WithoutPrefetchAGatherQueuesBehindTheReduction) {
  EXPECT_EQ(ScriptWith(1, Prefetch::kNone), "+r +0 F0 +1 F1 +1 B1 -1 +0 B0 -0 -r");
}

TEST(Fsdp, ForwardPrefetchGathersUnitsAhead) {
  EXPECT_EQ(ScriptWith(1, Prefetch::kBackwardPre, 1), "+r +0 +1 F0 F1 +1 +0 B1 -1 B0 -0 -r");
}

TEST(Fsdp, KeepsUnitsAfterForwardUnderShardGradOp) {
  Scenario s = TwoBlocks(1);
  s.parallel.data.sharding = Sharding::kShardGradOp;
  EXPECT_EQ(Script(Steady(*CompilePlan(s))), "+r +0 F0 +1 F1 B1 -1 B0 -0 -r");
}

TEST(Fsdp, RecomputationGathersNothingMore) {
  Scenario s = TwoBlocks(2);
  s.recompute = Recompute::kFull;
  EXPECT_EQ(Script(Steady(*CompilePlan(s))), ScriptWith(2, Prefetch::kBackwardPre));
}

TEST(Fsdp, NoSyncReducesInTheLastMicroBatchOnly) {
  Scenario s = TwoBlocks(2);
  s.batch.accumulate = 2;
  EXPECT_EQ(Script(Steady(*CompilePlan(s))),
            "+r +0 F0 +1 F1 +1 +0 B1 B0 +r +0 F0 +1 F1 +1 +0 B1 -1 B0 -0 -r");
  s.parallel.data.sync = GradientSync::kEveryMicroBatch;
  EXPECT_EQ(Script(Steady(*CompilePlan(s))),
            "+r +0 F0 +1 F1 +1 +0 B1 -1 B0 -0 -r +r +0 F0 +1 F1 +1 +0 B1 -1 B0 -0 -r");
}

// The embedding, which nothing reads after forward, is freed with the other tensors of the root, after its
// gradient.
TEST(Fsdp, AUnitGoesAsAWhole) {
  for (int version : {1, 2}) {
    const Plan plan = CompilePlan(TwoBlocks(version)).value();
    const Program& steady = Steady(plan);
    const auto last_of = [&](const auto& is_it) {
      OpIndex last = -1;
      for (OpIndex i = 0; i < static_cast<OpIndex>(steady.ops.size()); ++i)
        if (is_it(steady.ops[i])) last = i;
      return last;
    };
    const OpIndex gradient =
        last_of([](const Op& op) { return std::holds_alternative<EmbeddingBackward>(op.kind); });
    const std::string name = version == 1 ? "root" : "wte.weight";
    OpIndex freed = -1;  // before which operator
    for (const MemoryOp& op : steady.memory) {
      const Buffer& buffer = plan.roles[0].buffers[op.buffer];
      if (!op.allocates() && buffer.name == name && buffer.category == Category::kParameters)
        freed = op.before;
    }
    ASSERT_GE(freed, 0) << version;
    EXPECT_GT(freed, gradient) << version;
  }
}

// Without gradient sync, version 1 keeps what it kept after forward; version 2 gathers again, except in
// pipelines.
TEST(Fsdp, NoSyncReshardsInVersion2) {
  const auto gathers = [](int version, int64_t stages) {
    Scenario s = TwoBlocks(version);
    s.parallel.data.sharding = Sharding::kShardGradOp;
    s.parallel.data.reshard_after_forward = false;
    s.parallel.data.sync = GradientSync::kLastMicroBatch;
    s.parallel.pipeline.size = stages;
    s.batch.accumulate = 4;
    const Plan plan = CompilePlan(s).value();
    int count = 0;
    for (const Op& op : Steady(plan).ops) {
      const auto* collective = std::get_if<Collective>(&op.kind);
      count += collective != nullptr && collective->kind == CollectiveKind::kAllGather;
    }
    return count;
  };
  EXPECT_EQ(gathers(1, 1), 3);
  EXPECT_EQ(gathers(2, 1), 4 * 3);
  EXPECT_EQ(gathers(1, 2), 2) << "the first stage: its root and a block";
  EXPECT_EQ(gathers(2, 2), 2);
}

// With reshard_after_forward: 2 on four ranks, forward gathers over all four and backward over two, which
// hold half of each block until then.
TEST(Fsdp, ReshardsToFewerRanksAfterForward) {
  Scenario s = TwoBlocks(2);
  s.parallel.data.size = 4;
  const auto gathers = [](const Plan& plan) {
    std::string script;
    for (const Op& op : Steady(plan).ops) {
      const auto* collective = std::get_if<Collective>(&op.kind);
      if (collective == nullptr || collective->kind != CollectiveKind::kAllGather) continue;
      const Stream& stream = plan.roles[0].streams[op.stream];
      script += fmt::format("{}{} ", op.name == "root" ? "r" : op.name.substr(op.name.size() - 1),
                            plan.axes[stream.axis].size());
    }
    return script;
  };
  const Plan usual = CompilePlan(s).value();
  EXPECT_EQ(gathers(usual), "r4 04 14 14 04 ");
  s.parallel.data.reshard_ranks = 2;
  const Plan plan = CompilePlan(s).value();
  EXPECT_EQ(gathers(plan), "r4 04 14 12 02 ");
  EXPECT_EQ(Script(Steady(plan)), Script(Steady(usual)));
  int64_t block = 0;
  for (const Parameter& parameter : plan.roles[0].parameters)
    if (parameter.name.starts_with("blocks.0.")) block += parameter.elements;
  std::set<std::string> kept;
  for (const Buffer& buffer : plan.roles[0].buffers) {
    if (!buffer.name.ends_with("(kept)")) continue;
    kept.insert(buffer.name);
    EXPECT_EQ(buffer.bytes.count(), 4 * block / 2) << buffer.name;
  }
  EXPECT_EQ(kept, (std::set<std::string>{"blocks.0 (kept)", "blocks.1 (kept)"}));
}

// The forward of a stage's next micro-batch also gathers what the last forward kept.
TEST(Fsdp, StagesGatherWhatForwardKept) {
  Scenario s = TwoBlocks(2);
  s.parallel.data.size = 4;
  s.parallel.data.reshard_ranks = 2;
  s.parallel.data.sync = GradientSync::kLastMicroBatch;
  s.parallel.pipeline = {.size = 2, .schedule = "gpipe"};
  s.batch.accumulate = 2;
  const Plan plan = CompilePlan(s).value();
  std::vector<int> sizes;
  for (const Op& op : Steady(plan).ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (collective != nullptr && collective->kind == CollectiveKind::kAllGather && op.name != "root")
      sizes.push_back(plan.axes[plan.roles[0].streams[op.stream].axis].size());
  }
  EXPECT_EQ(sizes, (std::vector<int>{4, 2, 2}));
}

// Forwards of stages reshard. Their backwards keep what they have gathered until the last one.
TEST(Fsdp, StagesOfVersion2ReshardAfterForwardAndTheLastBackward) {
  const auto script = [](int version) {
    Scenario s = TwoBlocks(version);
    s.parallel.data.sync = GradientSync::kLastMicroBatch;
    s.parallel.pipeline = {.size = 2, .schedule = "gpipe"};
    s.batch.accumulate = 2;
    return Script(Steady(*CompilePlan(s)));
  };
  EXPECT_EQ(script(1), "+r +0 F0 +0 F0 +0 B0 +r +0 B0 -0 -r");
  EXPECT_EQ(script(2), "+r +0 F0 +0 F0 +0 B0 -0 -r");
}

// A stage's FSDP knows nothing of the rank's other stages: nothing of theirs is gathered during its forward
// and backward.
TEST(Fsdp, StagesPrefetchTheirOwnUnits) {
  Scenario s = TwoBlocks(2);
  s.model.layers = 16;
  s.parallel.data.forward_prefetch = 1;
  s.parallel.pipeline = {.size = 2, .schedule = "looped_bfs", .virtual_stages = 4};
  s.batch.accumulate = 2;
  // Of blocks 12 and 13 the last digits are gathered and reduced.
  EXPECT_EQ(Script(Steady(*CompilePlan(s))),
            "+r +0 +1 F0 F1 +0 +1 F0 F1 +4 +5 F4 F5 +4 +5 F4 F5 +8 +9 F8 F9 +8 +9 F8 F9 +2 +3 F12 F13 +2 +3 "
            "F12 F13 "
            "+3 +2 B13 B12 +3 +2 B13 -3 B12 -2 +9 +8 B9 B8 +9 +8 B9 -9 B8 -8 +5 +4 B5 B4 +5 +4 B5 -5 B4 -4 "
            "+1 +0 B1 B0 +r +1 +0 B1 -1 B0 -0 -r");
}

// Gradients that are reduced in the type in which they were computed are divided on the stream after which
// they are reduced, not on that of the GEMMs.
TEST(Fsdp, Version1DividesOnTheStreamForCopies) {
  Scenario s = TwoBlocks(1);
  s.cluster.device = "a100-sxm-80g";
  s.cluster.network.intra_node.kind = "nvlink3";
  s.framework = Framework::kPytorch;
  s.precision = {.param = Precision::kBf16, .compute = Precision::kBf16, .reduce = Precision::kBf16};
  const Plan plan = CompilePlan(s).value();
  int divisions = 0;
  for (const Op& op : Steady(plan).ops) {
    if (!std::holds_alternative<Scale>(op.kind)) continue;
    ++divisions;
    EXPECT_NE(op.stream, kComputeStream) << op.name;
  }
  EXPECT_EQ(divisions, 3);
}

// PyTorch's schedules keep three stages unsharded.
TEST(Fsdp, StagesBeyondThoseThatAreKeptReshard) {
  const auto gathers = [](int64_t stages_a_rank) {
    Scenario s = TwoBlocks(2);
    s.model.layers = 2 * stages_a_rank;
    s.parallel.data.sync = GradientSync::kLastMicroBatch;
    s.parallel.pipeline = {.size = 2, .schedule = "looped_bfs", .virtual_stages = stages_a_rank};
    s.batch.accumulate = 2;
    const Plan plan = CompilePlan(s).value();
    int64_t count = 0;
    for (const Op& op : Steady(plan).ops) {
      const auto* collective = std::get_if<Collective>(&op.kind);
      count += collective != nullptr && collective->kind == CollectiveKind::kAllGather &&
               op.name.starts_with("blocks");
    }
    return count / stages_a_rank;  // of each block
  };
  EXPECT_EQ(gathers(2), 3);  // two forwards, the first backward
  EXPECT_EQ(gathers(4), 4);
}

// Gradients of several backwards that are then reduced in another type are summed in that type.
TEST(Fsdp, Version2AccumulatesWholeGradientsInTheReductionsType) {
  const auto sums = [](int version, int64_t micro_batches, Precision reduce) {
    Scenario s = TwoBlocks(version);
    s.precision = {.param = Precision::kBf16, .compute = Precision::kBf16, .reduce = reduce};
    s.parallel.data.sync = GradientSync::kLastMicroBatch;
    s.batch.accumulate = micro_batches;
    const Plan plan = CompilePlan(s).value();
    std::pair<int, int> converted_and_added;
    for (const Op& op : Steady(plan).ops) {
      const auto* copy = std::get_if<Copy>(&op.kind);
      if (copy == nullptr || op.name.find("(accumulated)") == std::string::npos) continue;
      EXPECT_EQ(copy->from, DType::kBFloat16);
      EXPECT_EQ(plan.roles[0].buffers[op.writes[0].buffer].dtype, DType::kFloat32);
      ++(copy->accumulate ? converted_and_added.second : converted_and_added.first);
    }
    for (const Op& op : Steady(plan).ops) {
      const auto* pack = std::get_if<PackShards>(&op.kind);
      if (pack != nullptr) {
        EXPECT_EQ(pack->from, converted_and_added.first > 0 ? DType::kFloat32 : DType::kBFloat16);
      }
    }
    return converted_and_added;
  };
  const int tensors = static_cast<int>(CompilePlan(TwoBlocks(2)).value().roles[0].parameters.size());
  EXPECT_EQ(sums(2, 1, Precision::kFp32), std::pair(0, 0));
  EXPECT_EQ(sums(2, 3, Precision::kFp32), std::pair(tensors, 2 * tensors));
  EXPECT_EQ(sums(2, 3, Precision::kBf16), std::pair(0, 0));
  EXPECT_EQ(sums(1, 3, Precision::kFp32), std::pair(0, 0));
}

// In forward, a gather begins while the unit before it is still being copied out; in backward, after that.
TEST(Fsdp, ForwardsGathersComeBesideTheCopyingOutBeforeThem) {
  Scenario s = TwoBlocks(2);
  s.model.layers = 4;
  const Plan plan = CompilePlan(s).value();
  const std::vector<Op>& ops = Steady(plan).ops;
  std::vector<OpIndex> unpacked;
  std::map<std::string, int> behind;  // "F": forward's gathers by how many copyings-out are not waited for
  for (size_t i = 0; i < ops.size(); ++i) {
    const auto* collective = std::get_if<Collective>(&ops[i].kind);
    if (std::holds_alternative<UnpackShards>(ops[i].kind)) unpacked.push_back(static_cast<OpIndex>(i));
    if (collective == nullptr || collective->kind != CollectiveKind::kAllGather || unpacked.size() < 2)
      continue;
    int not_awaited = 0;
    for (size_t j = unpacked.size(); j-- > 0; ++not_awaited)
      if (std::count(ops[i].dependencies.begin(), ops[i].dependencies.end(), unpacked[j]) > 0) break;
    behind[ops[i].phase == Phase::kForward ? "F" + std::to_string(not_awaited)
                                           : "B" + std::to_string(not_awaited)]++;
  }
  EXPECT_EQ(behind, (std::map<std::string, int>{{"F1", 3}, {"B0", 4}}));
}

TEST(Fsdp, HybridSumsShardsOverTheirReplicasBehindTheReduceScatter) {
  Scenario s = TwoBlocks(1);
  s.parallel.data.size = s.cluster.devices_per_node = 4;
  s.parallel.data.sharding = Sharding::kHybridShard;
  s.parallel.data.shard_size = 2;
  const Plan plan = *CompilePlan(s);
  const std::vector<Stream>& streams = plan.roles[0].streams;
  int sums = 0;
  for (const Op& op : Steady(plan).ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (collective == nullptr || collective->kind != CollectiveKind::kAllReduce) continue;
    ++sums;
    EXPECT_EQ(plan.axes[streams[op.stream].axis].name, "replicate");
    ASSERT_EQ(op.dependencies.size(), 1u);
    EXPECT_EQ(OperatorName(Steady(plan).ops[op.dependencies[0]].kind), "reduce_scatter");
  }
  EXPECT_EQ(sums, 3);  // the root and two blocks
  EXPECT_EQ(plan.axes[1].groups[1].ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(plan.axes[2].groups[1].ranks, (std::vector<int>{1, 3}));
}

TEST(Fsdp, GathersInTheParameterTypeAndReducesInTheReductionType) {
  Scenario s = TwoBlocks(1);
  s.precision = {.param = Precision::kBf16, .compute = Precision::kBf16, .reduce = Precision::kFp32};
  const Plan plan = *CompilePlan(s);
  for (const Op& op : Steady(plan).ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (collective == nullptr || collective->kind == CollectiveKind::kBarrier) continue;
    EXPECT_EQ(collective->dtype,
              collective->kind == CollectiveKind::kAllGather ? DType::kBFloat16 : DType::kFloat32);
  }
}

TEST(Fsdp, TheRateLimiterHoldsTheHostBackOnDevicesWithStreams) {
  Scenario s = TwoBlocks(1);
  s.model.layers = 4;
  auto waits = [&] {
    const Plan plan = *CompilePlan(s);
    int count = 0;
    for (const Op& op : Steady(plan).ops) count += std::holds_alternative<HostWait>(op.kind);
    return count;
  };
  EXPECT_EQ(waits(), 0);  // a CPU's host never runs ahead
  s.cluster.device = "a100-sxm-80g";
  // Of the eight gathers of blocks, these wait: the third and fourth in forward, and in backward all but the
  // second, which comes right after the first.
  EXPECT_EQ(waits(), 5);
  s.parallel.data.limit_all_gathers = false;
  EXPECT_EQ(waits(), 0);
}

// Version 1 sums the gradient itself over replicas in fp32 and makes no copy of it
// (FullyShardedDataParallel's no_shard).
TEST(Fsdp, Version1WithoutShardsReducesTheGradientItself) {
  Scenario s = TwoBlocks(1);
  s.parallel.data.sharding = Sharding::kNoShard;
  s.precision.param = s.precision.compute = Precision::kBf16;
  const Plan plan = *CompilePlan(s);
  const Role& role = plan.roles[0];
  int sums = 0;
  for (const Op& op : role.steady.ops) {
    EXPECT_FALSE(op.name.ends_with("shard.grad") && std::holds_alternative<Copy>(op.kind)) << op.name;
    const auto* collective = std::get_if<Collective>(&op.kind);
    if (collective == nullptr || collective->kind != CollectiveKind::kAllReduce) continue;
    EXPECT_TRUE(role.buffers[op.writes[0].buffer].name.ends_with("shard.grad"))
        << role.buffers[op.writes[0].buffer].name;
    ++sums;
  }
  EXPECT_EQ(sums, 3);
}

TEST(Fsdp, SaysThatTiedWeightsCannotBeParted) {
  Scenario s = TwoBlocks(2);
  s.model.tie_embeddings = true;
  s.parallel.data.wrap = {WrapPolicy::Kind::kModules, 0, {"embedding"}};
  const auto plan = CompilePlan(s);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().kind, ErrorKind::kInvalidInput);
  EXPECT_NE(
      plan.error().message.find(
          "'embedding' holds the embedding, whose weight is used elsewhere, too (model.tie_embeddings)"),
      std::string::npos);
}

// ---- units ------------------------------------------------------------------------------------------------

// A root with 10 elements of its own and two children: "a" with 100, and "b" with 20 and a child "b.c" of 60.
struct Tree {
  std::vector<Module> modules = {{"", -1, {0}}, {"a", 0, {1}}, {"b", 0, {2}}, {"b.c", 2, {3}}};
  std::vector<Parameter> parameters;
  Tree() {
    for (int64_t elements : {10, 100, 20, 60}) parameters.push_back({"p", {elements}, elements, {}, {}, 0});
  }
  std::string UnitsWith(const WrapPolicy& policy) const {
    std::string text;
    const std::vector<FsdpUnit> units = *MakeUnits(modules, parameters, policy);
    for (const FsdpUnit& unit : units) {
      text += unit.name + ":";
      for (int parameter : unit.parameters) text += std::to_string(parameter);
      text += " ";
    }
    return text;
  }
};

TEST(MakeUnits, GivesARemainderToTheNearestUnitAbove) {
  EXPECT_EQ(Tree().UnitsWith({WrapPolicy::Kind::kRoot, 0, {}}), "root:0123 ");
  EXPECT_EQ(Tree().UnitsWith({WrapPolicy::Kind::kModules, 0, {"b.c"}}), "root:012 b.c:3 ");
  EXPECT_EQ(Tree().UnitsWith({WrapPolicy::Kind::kModules, 0, {"a", "b"}}), "root:0 a:1 b:23 ");
  EXPECT_EQ(Tree().UnitsWith({WrapPolicy::Kind::kModules, 0, {"*.c"}}), "root:012 b.c:3 ");
}

TEST(MakeUnits, WrapsBySizeFromTheInsideOut) {
  // 60 elements (240 B) reach 200 B, what they leave of b (80 B) does not.
  EXPECT_EQ(Tree().UnitsWith({WrapPolicy::Kind::kSize, 200, {}}), "root:02 a:1 b.c:3 ");
  // 80 elements reach 320 B together, 60 alone do not.
  EXPECT_EQ(Tree().UnitsWith({WrapPolicy::Kind::kSize, 320, {}}), "root:0 a:1 b:23 ");
  EXPECT_EQ(Tree().UnitsWith({WrapPolicy::Kind::kSize, 1000, {}}), "root:0123 ");
}

// The tied embedding is the first parameter.
TEST(MakeUnits, BySizeLeavesWhatIsTiedInTheRoot) {
  Tree tree;
  tree.modules = {{"", -1, {}}, {"embedding", 0, {0}}, {"b", 0, {1, 2}}};
  for (size_t i = 0; i < tree.parameters.size(); ++i) tree.parameters[i].ordinal = static_cast<int64_t>(i);
  const WrapPolicy by_size{WrapPolicy::Kind::kSize, 40, {}};
  const auto apart = MakeUnits(tree.modules, tree.parameters, by_size);
  EXPECT_EQ(apart->size(), 2u);
  const auto tied = MakeUnits(tree.modules, tree.parameters, by_size, /*is_whole=*/true, /*is_tied=*/true);
  ASSERT_EQ(tied->size(), 2u);
  EXPECT_EQ(tied->front().name, "root");
  EXPECT_EQ(tied->front().parameters, (std::vector<int>{0}));
}

TEST(MakeUnits, KeepsExpertsThatRanksShareApart) {
  Tree tree;
  tree.parameters[3].expert_stride = 60;
  EXPECT_EQ(tree.UnitsWith({WrapPolicy::Kind::kRoot, 0, {}}), "root:012 b.c:3 ");
  EXPECT_EQ(tree.UnitsWith({WrapPolicy::Kind::kModules, 0, {"b"}}), "root:01 b:2 b.c:3 ");
  EXPECT_EQ(tree.UnitsWith({WrapPolicy::Kind::kSize, 320, {}}),
            "root:02 a:1 b.c:3 ");  // b's 80 B do not reach it
}

TEST(MakeUnits, NamesTheModulesWhenOneIsNotFound) {
  const auto units = MakeUnits(Tree().modules, Tree().parameters, {WrapPolicy::Kind::kModules, 0, {"layer"}});
  ASSERT_FALSE(units);
  EXPECT_EQ(units.error().message, "parallel.data.wrap: no module is named 'layer'; there are a, b, b.c");
}

TEST(MakeShardLayout, PadsTheEndInVersion1AndEveryTensorInVersion2) {
  const std::vector<Parameter> parameters = {{"w", {5, 3}, 15, {}, {}, 0}, {"b", {2}, 2, {}, {}, 1}};
  const FsdpUnit unit{"u", 0, {0, 1}};
  const ShardLayout flat = MakeShardLayout(unit, parameters, 4, 1);
  EXPECT_EQ(flat.shard, 5);  // ceil(17 / 4)
  EXPECT_EQ(flat.starts, (std::vector<int64_t>{0, 15}));
  const ShardLayout rows = MakeShardLayout(unit, parameters, 4, 2);
  EXPECT_EQ(rows.shard_elements, (std::vector<int64_t>{6, 1}));  // two rows of three, one element
  EXPECT_EQ(rows.shard, 7);
}

TEST(PartOn, CutsATensorWhereShardsMeet) {
  const Placement place{
      .buffer = 0, .offset = 0, .per_rank = 10, .start = 8, .axis = 0};  // elements 8 … 22 of the flat tensor
  const LocalPart first = PartOn(place, 15, 0), second = PartOn(place, 15, 1), third = PartOn(place, 15, 2);
  EXPECT_EQ((std::array{first.first, first.elements, first.offset}), (std::array<int64_t, 3>{0, 2, 8}));
  EXPECT_EQ((std::array{second.first, second.elements, second.offset}), (std::array<int64_t, 3>{2, 10, 0}));
  EXPECT_EQ((std::array{third.first, third.elements, third.offset}), (std::array<int64_t, 3>{12, 3, 0}));
  EXPECT_EQ(PartOn(place, 15, 3).elements, 0);
}

// The same cut as a slice whose shards lie 100 elements apart in the buffer, from element 3 on.
TEST(Locate, FindsWhatARankHasOfACutTensor) {
  const Slice slice{
      .buffer = 0, .offset = 3, .elements = 15, .per_rank = 100, .axis = 0, .shard = 10, .start = 8};
  const auto at = [&](int rank) {
    const Located located = Locate(slice, rank);
    return std::array{located.first, located.elements};
  };
  EXPECT_EQ(at(0), (std::array<int64_t, 2>{3 + 8, 2}));
  EXPECT_EQ(at(1), (std::array<int64_t, 2>{103, 10}));
  EXPECT_EQ(at(2), (std::array<int64_t, 2>{203, 3}));
  EXPECT_EQ(at(3)[1], 0);
}

// In PyTorch, a reduction's output is allocated on the stream that reduces, and that output is the gradient.
// So with neither version does an activation use that memory in the next forward. Version 1 also allocates
// there the fp32 copy that it reduces.
TEST(Fsdp, GradientsBelongToThePoolOfReductions) {
  for (const int version : {1, 2}) {
    SCOPED_TRACE(version);
    Scenario s = TinyGpt(2);
    s.parallel.data.kind = DataParallelKind::kFsdp;
    s.parallel.data.version = version;
    s.parallel.data.sync = GradientSync::kEveryMicroBatch;
    s.precision.param = s.precision.compute = Precision::kBf16;
    s.batch.accumulate = 2;  // the second reduction arrives beside the gradient
    const Plan plan = *CompilePlan(s);
    std::set<std::string> apart;
    for (const MemoryOp& op : plan.roles[0].steady.memory) {
      if (!op.apart) continue;
      EXPECT_EQ(plan.roles[0].streams[op.stream].kind, StreamKind::kCommunication);
      const std::string& name = plan.roles[0].buffers[op.buffer].name;
      if (name.starts_with("blocks.0")) apart.insert(name);
    }
    std::set<std::string> expected = {"blocks.0 shard.grad", "blocks.0.grad (arriving)"};
    if (version == 1) expected.insert("blocks.0.grad (to reduce)");
    EXPECT_EQ(apart, expected);
  }
}

// So PyTorch reserves gradients in addition to what forward needs while there are no gradients. If as much is
// held before backward as in it, PyTorch reserves more than Windtunnel's allocator, whose memory serves any
// stream, by the size of all gradients.
TEST(Fsdp, PytorchReservesGradientsBesideActivations) {
  Scenario s = TinyGpt(2);
  s.model.layers = 8;
  s.model.hidden = 512;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 2048;
  s.batch.micro = 64;
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.parallel.data.version = 2;
  const Plan plan = *CompilePlan(s);
  Bytes gradients;
  for (const Buffer& buffer : plan.roles[0].buffers)
    if (buffer.name.ends_with(" shard.grad")) gradients += buffer.bytes;
  const auto reserved = [&](AllocatorKind allocator) {
    return SimulateMemory(plan.roles[0], {.allocator = allocator})->steady.reserved;
  };
  const Bytes more = reserved(AllocatorKind::kPytorch) - reserved(AllocatorKind::kWindtunnel);
  EXPECT_GT(more / gradients, 0.7) << more.count() << " of " << gradients.count();
}

}  // namespace
}  // namespace windtunnel
