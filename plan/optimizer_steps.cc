#include "plan/optimizer_steps.h"

#include "plan/layers.h"

namespace windtunnel {
namespace {

int StatesPerParameter(const OptimizerSpec& spec) {
  if (spec.kind == OptimizerKind::kSgd) return spec.momentum != 0 ? 1 : 0;
  return 2;
}

}  // namespace

OptimizerSteps::OptimizerSteps(Role& role, const OptimizerSpec& spec) : role_(role), spec_(spec) {
  static constexpr const char* kNames[] = {".exp_avg", ".exp_avg_sq"};
  for (int state = 0; state < StatesPerParameter(spec); ++state) {
    const char* name = spec.kind == OptimizerKind::kSgd ? ".momentum" : kNames[state];
    for (const Parameter& parameter : role.parameters) {
      states_.push_back(NewBuffer(role, parameter.name + name, parameter.elements, Category::kOptimizer));
    }
  }
  if (spec.clip_norm > 0) {
    role.gradient_norm = NewBuffer(role, "gradient norm", 1, Category::kWorkspace).buffer;
  }
}

std::vector<Slice> OptimizerSteps::Gradients() const {
  std::vector<Slice> gradients;
  for (const Parameter& parameter : role_.parameters) gradients.push_back(parameter.gradient);
  return gradients;
}

void OptimizerSteps::Add(ProgramBuilder& builder, bool first) {
  builder.SetPhase(Phase::kOptimizer);
  int64_t elements = 0;
  std::vector<Slice> writes;
  for (size_t i = 0; i < role_.parameters.size(); ++i) {
    elements += role_.parameters[i].elements;
    writes.push_back(Values(role_, static_cast<int>(i)));
  }
  writes.insert(writes.end(), states_.begin(), states_.end());
  const int64_t tensors = static_cast<int64_t>(role_.parameters.size());
  if (spec_.clip_norm > 0) {
    const Slice norm{role_.gradient_norm, 0, 1};
    if (first) builder.Alloc(norm.buffer);
    builder.Add(GradientNorm{elements, tensors}, "gradient_norm", Gradients(), {norm});
    builder.Add(ClipGradients{elements, tensors, spec_.clip_norm}, "clip", {norm}, Gradients());
  }
  if (first) {
    for (Slice state : states_) {
      builder.Alloc(state.buffer);
      builder.Add(Fill{state.elements}, role_.buffers[state.buffer].name, {}, {state});
    }
  }
  builder.Add(OptimizerUpdate{spec_, elements, tensors, StatesPerParameter(spec_)}, "optimizer", Gradients(), writes);
}

}  // namespace windtunnel
