// DataParallel in virtual time: two roles around collectives with a root.
#include <gtest/gtest.h>

#include <algorithm>

#include "cost_models/device_cost_model.h"
#include "sim/predict.h"
#include "tests/cost_models/device_specs.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Plan EightDevices() {
  Scenario s = Dp(TinyGpt(8));
  s.batch.accumulate = 2;
  s.cluster.device = "a100-sxm-80g";
  s.cluster.network.intra_node.kind = "nvlink3";
  return *CompilePlan(s);
}

TEST(DeviceReplicas, OneReplicaStandsForAll) {
  const DeviceSpec device = A100();
  const Plan plan = EightDevices();
  const Prediction two = *Predict(plan, *MakeDeviceCostModel(device, plan), {});
  EXPECT_EQ(two.timelines.size(), 2u);
  const Prediction all = *Predict(plan, *MakeDeviceCostModel(device, plan), {.fold = false});
  EXPECT_EQ(all.timelines.size(), 8u);
  EXPECT_EQ(all.p50, two.p50);
}

TEST(DeviceReplicas, NoCommunicationRunsBesideComputation) {
  const DeviceSpec device = A100();
  const Plan plan = EightDevices();
  const Prediction prediction = *Predict(plan, *MakeDeviceCostModel(device, plan), {});
  for (const Timeline& timeline : prediction.timelines) {
    const Role& role = plan.RoleOf(timeline.rank);
    for (const Span& a : timeline.spans) {
      if (role.streams[a.stream].kind != StreamKind::kCommunication) continue;
      for (const Span& b : timeline.spans) {
        const bool beside = b.stream == kComputeStream && a.start < b.end && b.start < a.end;
        EXPECT_FALSE(beside) << role.name << ": " << role.steady.ops[a.op].name << " beside "
                             << role.steady.ops[b.op].name;
      }
    }
  }
}

// The device for which all others wait also runs out of memory first.
TEST(DeviceReplicas, MainHoldsWhatTheOthersDoNot) {
  const DeviceSpec device = A100();
  const Plan plan = EightDevices();
  const Prediction prediction = *Predict(plan, *MakeDeviceCostModel(device, plan), {});
  ASSERT_EQ(prediction.memory.size(), 2u);
  const MemoryPeak &main = prediction.memory[0].steady, &replica = prediction.memory[1].steady;
  constexpr int kOptimizer = static_cast<int>(Category::kOptimizer);
  EXPECT_GE(main.by_category[kOptimizer], Bytes(8 * plan.model.parameters));
  EXPECT_EQ(replica.by_category[kOptimizer], Bytes(0));
  EXPECT_GT(main.allocated, replica.allocated);
}

}  // namespace
}  // namespace windtunnel
