#include "plan/loss_scaling.h"

namespace windtunnel {

void AddLossScaling(Role& role, const PrecisionSpec& precision) {
  if (!precision.scales_loss()) return;
  LossScaling scaling;
  scaling.numbers = NewBuffer(role, "loss scale", kLossScaleNumbers, Category::kWorkspace);
  scaling.found_inf = NewBuffer(role, "found_inf", 1, Category::kWorkspace);
  const bool is_static = precision.static_loss_scale > 0;
  scaling.first = is_static ? precision.static_loss_scale : precision.init_scale;
  scaling.update.dynamic = !is_static;
  scaling.update.growth_interval = precision.growth_interval;
  role.loss_scaling = scaling;
}

void InitializeLossScaling(ProgramBuilder& b) {
  if (!b.role().loss_scaling) return;
  const LossScaling& scaling = *b.role().loss_scaling;
  b.Alloc(scaling.numbers.buffer);
  b.Alloc(scaling.found_inf.buffer);
  const Slice scale{scaling.numbers.buffer, 0, 1}, counts{scaling.numbers.buffer, 1, kLossScaleNumbers - 1};
  b.Add(Fill{scale.elements, scaling.first}, "loss scale", {}, {scale});
  b.Add(Fill{counts.elements}, "loss scale", {}, {counts});
}

bool ReadLossScale(ProgramBuilder& b, std::vector<Slice>& reads) {
  if (!b.role().loss_scaling) return false;
  reads.push_back(b.role().loss_scaling->numbers);
  return true;
}

void AddLossScaleUpdate(ProgramBuilder& b) {
  if (!b.role().loss_scaling) return;
  const LossScaling& scaling = *b.role().loss_scaling;
  b.SetPhase(Phase::kOptimizer);
  b.Add(scaling.update, "loss scale", {scaling.found_inf}, {scaling.numbers});
}

}  // namespace windtunnel
