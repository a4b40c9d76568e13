// Loss scaling in step programs: which operators scale, check, agree and skip, and where there are none.
#include "plan/loss_scaling.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario InFp16(Scenario s, double clip_norm = 0) {
  s.precision.param = s.precision.compute = Precision::kFp16;
  s.precision.loss_scale = LossScale::kDynamic;
  s.optimizer.clip_norm = clip_norm;
  return s;
}

// The names of the steady step's operators from the first one that checks gradients on, without copies.
std::vector<std::string> EndOfStep(const Role& role) {
  std::vector<std::string> names;
  for (const Op& op : role.steady.ops) {
    const std::string name(OperatorName(op.kind));
    if (names.empty() && name != "unscale") continue;
    if (name == "copy") continue;
    names.push_back(name);
  }
  return names;
}

template <typename T>
const Op* Find(const Role& role) {
  for (const Op& op : role.steady.ops)
    if (std::holds_alternative<T>(op.kind)) return &op;
  return nullptr;
}

TEST(LossScaling, UnscalesThenClipsThenUpdatesUnlessItOverflowed) {
  const Plan plan = *CompilePlan(InFp16(TinyGpt(), 1.0));
  EXPECT_EQ(EndOfStep(plan.roles[0]),
            (std::vector<std::string>{"unscale", "gradient_norm", "clip", "optimizer", "loss_scale"}));
  const LossScaling& scaling = *plan.roles[0].loss_scaling;
  EXPECT_EQ(scaling.first, 65536);
  EXPECT_TRUE(scaling.update.dynamic);
  const Op* loss = Find<CrossEntropy>(plan.roles[0]);
  EXPECT_TRUE(std::get<CrossEntropy>(loss->kind).scaled);
  EXPECT_EQ(loss->reads.back().buffer, scaling.numbers.buffer);
  const Op* update = Find<OptimizerUpdate>(plan.roles[0]);
  EXPECT_TRUE(std::get<OptimizerUpdate>(update->kind).guarded);
  EXPECT_EQ(update->reads[update->reads.size() - 2].buffer, scaling.found_inf.buffer);
}

TEST(LossScaling, IsNotThereUnlessAskedFor) {
  Scenario s = InFp16(TinyGpt());
  s.precision.loss_scale = LossScale::kNone;
  const Plan plan = *CompilePlan(s);
  EXPECT_FALSE(plan.roles[0].loss_scaling);
  EXPECT_EQ(Find<UnscaleGradients>(plan.roles[0]), nullptr);
  EXPECT_FALSE(std::get<CrossEntropy>(Find<CrossEntropy>(plan.roles[0])->kind).scaled);
}

TEST(LossScaling, AStaticScaleStaysAndOverflowsAreSkippedAllTheSame) {
  Scenario s = InFp16(TinyGpt());
  s.precision.loss_scale = LossScale::kNone;
  s.precision.static_loss_scale = 1024;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(plan.roles[0].loss_scaling->first, 1024);
  EXPECT_FALSE(plan.roles[0].loss_scaling->update.dynamic);
  EXPECT_NE(Find<UnscaleGradients>(plan.roles[0]), nullptr);
}

// Gradients that all ranks hold whole overflow on all ranks. For parts, a maximum is needed over the ranks
// that hold the others.
TEST(LossScaling, RanksThatHoldPartsAgree) {
  const auto agreed_over = [](const Scenario& scenario) {
    const Plan plan = *CompilePlan(scenario);
    std::vector<std::string> axes;
    for (const Op& op : plan.roles[0].steady.ops) {
      if (op.name != "found_inf") continue;
      EXPECT_EQ(std::get<Collective>(op.kind).reduction, Reduction::kMax);
      EXPECT_EQ(std::get<Collective>(op.kind).elements, 1);
      axes.push_back(plan.axes[plan.roles[0].streams[op.stream].axis].name);
    }
    return axes;
  };
  using Axes = std::vector<std::string>;
  EXPECT_EQ(agreed_over(InFp16(TinyGpt(2))), Axes());
  Scenario sharded = InFp16(TinyGpt(2));
  sharded.parallel.data.kind = DataParallelKind::kFsdp;
  EXPECT_EQ(agreed_over(sharded), Axes{"world"});
  Scenario parts = InFp16(TinyGpt(2));
  parts.parallel.tensor.size = 2;
  parts.parallel.pipeline.size = 2;
  parts.batch.accumulate = 2;
  parts.cluster.devices_per_node = 8;
  EXPECT_EQ(agreed_over(parts), (Axes{"tensor", "pipeline"}));
}

// The stage without the loss scales nothing, but has to know by what to divide.
TEST(LossScaling, EveryStageKeepsTheScale) {
  Scenario s = InFp16(TinyGpt());
  s.parallel.pipeline.size = s.cluster.devices_per_node = 2;
  s.batch.accumulate = 2;
  const Plan plan = *CompilePlan(s);
  for (const Role& role : plan.roles) {
    EXPECT_NE(Find<UnscaleGradients>(role), nullptr) << role.name;
    EXPECT_NE(Find<UpdateLossScale>(role), nullptr) << role.name;
  }
}

}  // namespace
}  // namespace windtunnel
