#include "plan/optimizer_steps.h"

#include <algorithm>

namespace windtunnel {
namespace {

int StatesPerTarget(const OptimizerSpec& spec) {
  if (spec.kind == OptimizerKind::kSgd) return spec.momentum != 0 ? 1 : 0;
  return 2;
}

}  // namespace

OptimizerSteps::OptimizerSteps(Role& role, const OptimizerSpec& spec,
                               const std::vector<OptimizerTarget>& targets)
    : role_(role), spec_(spec), targets_(targets), states_per_target_(StatesPerTarget(spec)) {
  static constexpr const char* kNames[] = {".exp_avg", ".exp_avg_sq"};
  for (int state = 0; state < states_per_target_; ++state) {
    const char* name = spec.kind == OptimizerKind::kSgd ? ".momentum" : kNames[state];
    for (const OptimizerTarget& target : targets_) {
      states_.push_back(NewBuffer(role, target.name + name, target.values.elements, Category::kOptimizer,
                                  DType::kFloat32, role.buffers[target.values.buffer].space));
    }
  }
  if (spec.clip_norm > 0) {
    role.gradient_norm = NewBuffer(role, "gradient norm", 1, Category::kWorkspace).buffer;
  }
}

void OptimizerSteps::AddClipping(ProgramBuilder& b, bool first,
                                 const std::vector<CollectiveStream*>& sum_over) {
  if (spec_.clip_norm <= 0) return;
  b.SetPhase(Phase::kOptimizer);
  const Slice norm{role_.gradient_norm, 0, 1};
  const bool in_parts = std::any_of(sum_over.begin(), sum_over.end(),
                                    [](const CollectiveStream* axis) { return axis->ranks() > 1; });
  std::vector<Slice> gradients, counted;
  int64_t elements = 0, counted_elements = 0;
  for (const OptimizerTarget& target : targets_) {
    gradients.push_back(target.gradient);
    elements += target.gradient.elements;
    for (const Slice& part : target.counted) {
      counted.push_back(part);
      counted_elements += part.elements;
    }
  }
  if (first) b.Alloc(norm.buffer);
  const int64_t tensors = static_cast<int64_t>(counted.size());
  OpIndex sum = b.Add(GradientNorm{counted_elements, tensors, in_parts}, "gradient_norm", counted, {norm});
  for (CollectiveStream* axis : sum_over) {
    if (axis->ranks() > 1) sum = axis->AllReduce(b, norm, "gradient_norm", {sum});
  }
  if (in_parts) b.Add(SquareRoot{}, "gradient_norm", {norm}, {norm}, {sum});
  b.Add(ClipGradients{elements, targets(), spec_.clip_norm}, "clip", {norm}, gradients);
}

OpIndex OptimizerSteps::AddUpdate(ProgramBuilder& b, bool first, int begin, int end, std::string name) {
  b.SetPhase(Phase::kOptimizer);
  std::vector<Slice> gradients, writes;
  int64_t elements = 0;
  for (int i = begin; i < end; ++i) {
    gradients.push_back(targets_[i].gradient);
    writes.push_back(targets_[i].values);
    elements += targets_[i].values.elements;
  }
  for (int state = 0; state < states_per_target_; ++state) {
    for (int i = begin; i < end; ++i)
      writes.push_back(states_[static_cast<size_t>(state) * targets_.size() + i]);
  }
  if (first) {
    for (size_t i = static_cast<size_t>(end - begin); i < writes.size(); ++i) {
      b.Alloc(writes[i].buffer);
      b.Add(Fill{writes[i].elements}, role_.buffers[writes[i].buffer].name, {}, {writes[i]});
    }
  }
  const OptimizerUpdate update{spec_, elements, end - begin, states_per_target_};
  return b.Add(update, std::move(name), std::move(gradients), std::move(writes));
}

}  // namespace windtunnel
