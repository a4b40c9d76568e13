// The memory that NCCL holds, checked against others' measurements.
#include "cost_models/communicator_memory.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cost_models/device_spec.h"
#include "plan/axes.h"

namespace windtunnel {
namespace {

const CommunicatorMemorySpec& H100() {
  static const CommunicatorMemorySpec spec =
      ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "h100")->communicators;
  return spec;
}

Scenario On(int64_t nodes) {
  Scenario s;
  s.model.tie_embeddings = false;
  s.cluster.nodes = nodes;
  s.cluster.devices_per_node = 8;
  return s;
}

double GiBOf(const Scenario& scenario) { return CommunicatorMemory(scenario, H100()) / GiB(1); }

TEST(CommunicatorMemory, IsNothingForOneRankAndOneCommunicatorForOneAxis) {
  EXPECT_EQ(GiBOf(On(1)), 0);
  Scenario s = On(1);
  s.parallel.data.size = 8;
  EXPECT_NEAR(GiBOf(s), 1.45, 0.01);
  s.parallel.data.size = 1;
  s.parallel.tensor.size = 8;
  EXPECT_NEAR(GiBOf(s), 1.45, 0.01);
}

// With tensor, pipeline and data parallelism, a device has a communicator for each beside that of all ranks.
TEST(CommunicatorMemory, GrowsWithEveryAxis) {
  Scenario s = On(1);
  s.parallel.data.size = s.parallel.tensor.size = 2;
  EXPECT_NEAR(GiBOf(s), 1.45 + 2 * 0.6, 0.01);
  s.parallel.pipeline.size = 2;
  EXPECT_NEAR(GiBOf(s), 1.45 + 3 * 0.6 + 0.375, 0.01) << "one neighbour, on 32 channels of 12 MiB";
  s.model.tie_embeddings = true;
  EXPECT_NEAR(GiBOf(s), 1.45 + 4 * 0.6 + 0.375, 0.01);
}

// reshard_after_forward: N is FSDP's.
TEST(CommunicatorMemory, OnlyFsdpGathersAmongPartsOfAShardGroup) {
  Scenario s = On(4);
  s.parallel.data = {.kind = DataParallelKind::kFsdp, .size = 32, .reshard_ranks = 8};
  EXPECT_NEAR(GiBOf(s), 1.45 + 0.6, 0.01);
  s.parallel.data.kind = DataParallelKind::kZero1;
  EXPECT_NEAR(GiBOf(s), 1.45, 0.01);
}

// nccl issue 1685: 3.3 GB more after the first all-to-all over 8 H100s; Megatron-LM issue 6392: 1.15 GiB over 4.
TEST(CommunicatorMemory, AllToAllsTalkToEveryRankOfTheNode) {
  Scenario s = On(1);
  s.model.experts.emplace();
  s.parallel.data.size = s.parallel.expert.size = 8;
  EXPECT_NEAR(GiBOf(s) - 1.45, 7 * 0.375, 0.01);
  s.parallel.expert.size = 4;
  EXPECT_NEAR(GiBOf(s) - 1.45, 3 * 0.375 + 2 * 0.6, 0.01) << "and those with the same experts";
  s.parallel.expert.dispatcher = ExpertDispatcher::kDeepEp;
  EXPECT_NEAR(GiBOf(s) - 1.45, 0.6, 0.01);
}

// Across nodes NCCL uses two channels to each peer on the node, and one pool for peers on other nodes.
TEST(CommunicatorMemory, PeersOfGroupsOverNodesHaveFewChannels) {
  Scenario s = On(2);
  s.model.experts.emplace();
  s.parallel.data.size = s.parallel.expert.size = 16;
  EXPECT_NEAR(GiBOf(s) - 1.45, 7 * 2 * 12 / 1024.0 + 0.5, 0.01);
  s = On(4);
  s.parallel.tensor.size = 8;
  s.parallel.pipeline.size = 4;
  EXPECT_NEAR(GiBOf(s) - 1.45, 2 * 0.6 + 0.5, 0.01) << "neighbours are on other nodes";
}

TEST(CommunicatorMemory, ShardGroupsAndTheirReplicasAreTwo) {
  Scenario s = On(2);
  s.parallel.data.size = 16;
  s.parallel.data.shard_size = 8;
  EXPECT_NEAR(GiBOf(s) - 1.45, 0, 0.01) << "of DDP there are none";
  s.parallel.data.kind = DataParallelKind::kZero1;
  EXPECT_NEAR(GiBOf(s) - 1.45, 2 * 0.6, 0.01);
  s.parallel.data.kind = DataParallelKind::kFsdp;
  EXPECT_NEAR(GiBOf(s) - 1.45, 0, 0.01) << "full_shard has none either";
  s.parallel.data.sharding = Sharding::kHybridShard;
  EXPECT_NEAR(GiBOf(s) - 1.45, 2 * 0.6, 0.01);
  s.parallel.data.sharding = Sharding::kFullShard;
  s.parallel.data.reshard_ranks = 8;
  EXPECT_NEAR(GiBOf(s) - 1.45, 0.6, 0.01) << "those that keep a copy among them";
}

TEST(CommunicatorMemory, EmbeddingsAreSharedByTheEndsOfAPipeline) {
  Scenario s = On(1);
  s.parallel.data.size = 2;
  s.parallel.pipeline.size = 4;
  const double without = GiBOf(s);
  s.model.mtp.emplace();
  EXPECT_NEAR(GiBOf(s) - without, 0.6, 0.01) << "modules of further tokens use it";
  s.parallel.pipeline.schedule = "zb_v";
  EXPECT_NEAR(GiBOf(s), without, 0.01) << "one rank has both ends of a V";
}

TEST(CommunicatorMemory, KeysAndValuesGoAroundARingOrToAll) {
  Scenario s = On(1);
  s.parallel.context.size = 8;
  s.parallel.context.kind = ContextKind::kRing;
  EXPECT_NEAR(GiBOf(s) - 1.45, 2 * 0.375, 0.01);
  s.parallel.context.kind = ContextKind::kUlysses;
  EXPECT_NEAR(GiBOf(s) - 1.45, 7 * 0.375, 0.01);
  s.parallel.context.kind = ContextKind::kAllGather;
  EXPECT_NEAR(GiBOf(s) - 1.45, 0, 0.01);
}

TEST(CommunicatorMemory, ExpertsOverTensorRanks) {
  Scenario s = On(1);
  s.model.experts.emplace();
  s.parallel.tensor.size = 2;
  s.parallel.data.size = 4;
  s.parallel.expert.size = 8;
  s.parallel.expert.tensor = 1;
  EXPECT_NEAR(GiBOf(s) - 1.45, 3 * 0.6 + 7 * 0.375, 0.01)
      << "tensor, data, and the experts' ranks of one tensor rank; experts are over all ranks";
  s.parallel.expert.size = 2;
  EXPECT_NEAR(GiBOf(s) - 1.45, 3 * 0.6 + 0.375, 0.01)
      << "experts over tensor ranks alone: no group of those alike";
}

// Of 16 replicas four share the experts. Eight share the states, and so two of those with the same experts.
TEST(CommunicatorMemory, ExpertsAreShardedInGroupsOfTheirOwn) {
  Scenario s = On(2);
  s.model.experts.emplace();
  s.parallel.data.size = 16;
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.parallel.expert.size = 4;
  const double whole = GiBOf(s);
  s.parallel.data.shard_size = 8;
  EXPECT_NEAR(GiBOf(s) - whole, 3 * 0.6, 0.01) << "shards, their replicas, and the experts' shards";
}

// The plan has a group for each communicator beside that of all ranks (without messages, which all have one).
RC_GTEST_PROP(CommunicatorMemory, IsOfTheGroupsOfThePlan, ()) {
  const auto any = [](std::initializer_list<int64_t> of) { return *rc::gen::elementOf(std::vector(of)); };
  Scenario s = On(2);
  s.model.experts.emplace();
  s.model.experts->count = 8;
  s.parallel.tensor = {.size = any({1, 2}), .sequence = true};
  s.parallel.data.size = any({2, 4, 8});
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.parallel.data.shard_size = any({0, 2, 4});
  s.parallel.expert.size = any({1, 2, 4});
  s.parallel.expert.tensor = any({0, 1});
  const ParallelSpec& p = s.parallel;
  RC_PRE(!p.TensorRanksHaveExperts() || p.expert.size % p.tensor.size == 0);
  RC_PRE(p.data.size % p.ExpertDataRanks() == 0);
  Plan plan;
  plan.scenario = s;
  plan.world_size = static_cast<int>(s.WorldSize());
  plan.mesh = DeviceMesh(s.parallel);
  const auto axes = AddAxes(plan);
  RC_PRE(axes.has_value());
  CommunicatorMemorySpec spec;
  spec.further = Bytes(1);
  int64_t further = 0;
  for (const Axis& axis : plan.axes)
    further += axis.groups.front().ranks.size() < static_cast<size_t>(plan.world_size);
  RC_ASSERT(CommunicatorMemory(s, spec).count() == further);
}

// Groups of six adjacent ranks in nodes of eight: ranks 6 to 11 are on two nodes.
TEST(CommunicatorMemory, GroupsThatStraddleNodesAreNotWithinOne) {
  Scenario s = On(3);
  s.model.experts.emplace();
  s.parallel.data.size = 24;
  s.parallel.expert.size = 6;
  EXPECT_NEAR(GiBOf(s) - 1.45, 2 * 0.6 + 5 * 2 * 12 / 1024.0 + 0.5, 0.01);
}

}  // namespace
}  // namespace windtunnel
