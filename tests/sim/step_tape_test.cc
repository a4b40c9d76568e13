// A tape gives the step of its plan.
#include "sim/composed/step_tape.h"

#include <gtest/gtest.h>

#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "sim/predict.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/sim/datasheets.h"

namespace windtunnel {
namespace {

Scenario OnA100s(DataParallelKind kind, int64_t ranks) {
  Scenario s = TinyLlama(ranks);
  s.parallel.data.kind = kind;
  s.precision.param = s.precision.compute = Precision::kBf16;
  s.batch.accumulate = 2;
  s.framework = Framework::kPytorch;
  s.cluster.device = "a100-sxm-80g";
  s.cluster.devices_per_node = ranks;
  s.cluster.network.intra_node.kind = "nvlink3";
  return s;
}

TEST(StepTape, TakesAsLongAsItsPlan) {
  for (const DataParallelKind kind : {DataParallelKind::kDdp, DataParallelKind::kZero1,
                                      DataParallelKind::kZero2, DataParallelKind::kFsdp}) {
    for (const Offload offload : {Offload::kNone, Offload::kOptimizer}) {
      Scenario s = OnA100s(kind, 4);
      if (kind != DataParallelKind::kDdp) s.parallel.data.offload = offload;
      const Plan plan = CompilePlan(s).value();
      const auto model = MakeProfileCostModel(A100(), plan);
      const auto taped = composed::TapeOf(plan, *model);
      ASSERT_TRUE(taped) << taped.error().message;
      EXPECT_EQ(composed::RunTape(taped->tape, taped->schedule).value(),
                PredictStepTime(plan, *model, {}).value());
    }
  }
}

// A step frees what it allocates, except gradients, with which the next step begins.
TEST(StepTape, HasWhatTheStepAllocates) {
  const Plan plan = CompilePlan(OnA100s(DataParallelKind::kFsdp, 4)).value();
  const auto taped = composed::TapeOf(plan, *MakeProfileCostModel(A100(), plan)).value();
  int64_t net = 0;
  for (const composed::TapeItem& item : taped.tape.items)
    if (item.kind == composed::TapeItem::Kind::kMemory) net += item.amount;
  EXPECT_EQ(net, 0);
}

TEST(StepTape, IsOfRanksThatAreAlike) {
  Scenario s = OnA100s(DataParallelKind::kDdp, 2);
  s.parallel.pipeline.size = 2;
  s.batch.accumulate = 4;
  s.cluster.devices_per_node = 4;
  const Plan plan = CompilePlan(s).value();
  const auto taped = composed::TapeOf(plan, *MakeProfileCostModel(A100(), plan));
  ASSERT_FALSE(taped);
  EXPECT_EQ(taped.error().kind, ErrorKind::kUnsupported);
  s = OnA100s(DataParallelKind::kDdp, 2);
  s.cluster.jitter = 0.02;
  const Plan jittery = CompilePlan(s).value();
  EXPECT_FALSE(composed::TapeOf(jittery, *MakeProfileCostModel(A100(), jittery)));
}

TEST(StepTape, LayersAreAlikeWhateverTheyWaitFor) {
  const Plan plan = CompilePlan(OnA100s(DataParallelKind::kFsdp, 4)).value();
  const auto taped = composed::TapeOf(plan, *MakeProfileCostModel(A100(), plan)).value();
  const std::span<const composed::TapeItem> items(taped.tape.items);
  EXPECT_TRUE(AreAlike(taped.tape, items.first(20), items.first(20)));
  EXPECT_FALSE(AreAlike(taped.tape, items.first(20), items.first(21)));
  composed::StepTape longer = taped.tape;
  ++longer.items[10].amount;
  EXPECT_FALSE(
      AreAlike(longer, items.first(20), std::span<const composed::TapeItem>(longer.items).first(20)));
}

}  // namespace
}  // namespace windtunnel
