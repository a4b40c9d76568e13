// DataParallel's programs: what each role does, in which order, and what it holds.
#include "plan/device_replicas.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/gradient_buckets.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

using Names = std::vector<std::string>;

// A program's communication operators in order: "scatter inputs", …
Names Communication(const Program& program) {
  Names names;
  for (const Op& op : program.ops) {
    if (IsCommunication(op.kind)) names.push_back(fmt::format("{} {}", OperatorName(op.kind), op.name));
  }
  return names;
}

int Count(const Program& program, std::string_view operator_name) {
  return static_cast<int>(std::count_if(program.ops.begin(), program.ops.end(), [&](const Op& op) {
    return OperatorName(op.kind) == operator_name;
  }));
}

TEST(TakeTensors, ClosesABucketBeforeTheTensorThatIsTooMuch) {
  using Buckets = std::vector<std::vector<int>>;
  const std::vector<Bytes> sizes = {Bytes(300), Bytes(800), Bytes(200), Bytes(2000), Bytes(1)};
  EXPECT_EQ(TakeTensors(sizes, Bytes(1000)), (Buckets{{0}, {1, 2}, {3}, {4}}));
}

TEST(DeviceReplicas, MainIsTheRootAndTheOthersShareARole) {
  const Plan plan = *CompilePlan(Dp(TinyGpt(3)));
  ASSERT_EQ(plan.roles.size(), 2u);
  EXPECT_EQ(plan.roles[0].name, "main");
  EXPECT_EQ(plan.roles[0].ranks, std::vector<int>{0});
  EXPECT_EQ(plan.roles[1].name, "replica");
  EXPECT_EQ(plan.roles[1].ranks, (std::vector<int>{1, 2}));
  EXPECT_EQ(plan.role_of_rank, (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(plan.model.tokens_per_step, 3 * 2 * 16);
  for (const Role& role : plan.roles) {
    for (const Op& op : role.steady.ops) {
      if (const auto* collective = std::get_if<Collective>(&op.kind)) {
        EXPECT_EQ(collective->root, 0);
      }
    }
  }
}

TEST(DeviceReplicas, EveryMicroBatchReplicatesAnew) {
  Scenario s = Dp(TinyGpt(2));
  s.batch.accumulate = 2;
  const Plan plan = *CompilePlan(s);
  const Names micro_batch = {"scatter inputs", "broadcast replica 0", "gather outputs",
                             "scatter output gradients", "reduce gradients 0"};
  Names expected = micro_batch;
  expected.insert(expected.end(), micro_batch.begin(), micro_batch.end());
  expected.push_back("barrier barrier");
  for (const Role& role : plan.roles) EXPECT_EQ(Communication(role.steady), expected) << role.name;
}

TEST(DeviceReplicas, OnlyMainLoadsTakesTheLossAndUpdates) {
  const Plan plan = *CompilePlan(Dp(TinyGpt(2)));
  const Program &main = plan.roles[0].steady, &replica = plan.roles[1].steady;
  for (const char* operation : {"data", "loss", "optimizer"}) {
    EXPECT_EQ(Count(main, operation), 1) << operation;
    EXPECT_EQ(Count(replica, operation), 0) << operation;
  }
  EXPECT_EQ(Count(main, "gemm"), Count(replica, "gemm"));
  EXPECT_TRUE(plan.roles[1].losses.empty());
  EXPECT_EQ(Count(plan.roles[1].initialize, "initialize"), 0);
}

// The loss is the mean over the rows of all devices, so the sum of their gradients is that of the whole
// batch, and nothing is divided.
TEST(DeviceReplicas, GradientsAreSummedAndNotAveraged) {
  const Plan plan = *CompilePlan(Dp(TinyGpt(4)));
  for (const Op& op : plan.roles[0].steady.ops) {
    if (const auto* loss = std::get_if<CrossEntropy>(&op.kind)) {
      EXPECT_EQ(loss->rows, 4 * 2 * 16);
      EXPECT_EQ(loss->gradient_scale, 1.0);
    }
    if (const auto* pack = std::get_if<PackShards>(&op.kind)) {
      EXPECT_EQ(pack->scale, 1.0);
    }
  }
}

// Head and embedding have 3 Mi parameters each, 12 MiB: more than a buffer of 10 MiB. A broadcast's buffer is
// closed once it has reached 10 MiB, a reduction's before it would exceed them.
TEST(DeviceReplicas, BuffersOfTenMebibytesAndTensorsThatAreLargerTravelWhereTheyAre) {
  Scenario s = Dp(TinyGpt(2));
  s.model.layers = 1;
  s.model.hidden = 64;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.vocab = 49'152;
  const Plan plan = *CompilePlan(s);
  const Names expected = {"scatter inputs",     "broadcast replica 0",      "broadcast replica 1",
                          "gather outputs",     "scatter output gradients", "reduce gradients 0",
                          "reduce gradients 1", "reduce gradients 2",       "barrier barrier"};
  for (const Role& role : plan.roles) {
    EXPECT_EQ(Communication(role.steady), expected);
    // replica 0 is the embedding; replica 1 all the rest, which ends with the head. gradients 0 and 2 are
    // single tensors.
    EXPECT_EQ(Count(role.steady, "copy"), role.name == "main" ? 2 : 1) << role.name;
  }
}

// A collective is awaited before anything else is computed.
TEST(DeviceReplicas, NothingOverlaps) {
  const Plan plan = *CompilePlan(Dp(TinyLlama(2)));
  for (const Role& role : plan.roles) {
    OpIndex pending = -1;
    for (OpIndex i = 0; i < static_cast<OpIndex>(role.steady.ops.size()); ++i) {
      const Op& op = role.steady.ops[i];
      if (IsCommunication(op.kind)) pending = i;
      if (op.stream != kComputeStream || pending < 0) continue;
      EXPECT_TRUE(std::find(op.dependencies.begin(), op.dependencies.end(), pending) != op.dependencies.end())
          << role.name << ": '" << op.name << "' does not wait";
      pending = -1;
    }
  }
}

TEST(DeviceReplicas, OneDeviceIsRunDirectly) {
  const Plan plan = *CompilePlan(Dp(TinyGpt(1)));
  ASSERT_EQ(plan.roles.size(), 1u);
  EXPECT_TRUE(Communication(plan.roles[0].steady).empty());
}

}  // namespace
}  // namespace windtunnel
