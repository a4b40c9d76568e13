#include "plan/parameter_gradients.h"

namespace windtunnel {

ParameterGradients::ParameterGradients(Role& role, DType type)
    : alive_(role.parameters.size(), false), holds_value_(role.parameters.size(), false) {
  gradients_.resize(role.parameters.size());
  for (const int i : TrainedOf(role.parameters)) {
    const Parameter& parameter = role.parameters[i];
    gradients_[i] = NewBuffer(role, parameter.name + ".grad", parameter.elements, Category::kGradients, type);
  }
}

void ParameterGradients::ZeroGrad(ProgramBuilder& builder, bool alive_at_start) {
  builder_ = &builder;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (alive_at_start && gradients_[i].buffer >= 0) builder.Free(gradients_[i].buffer);
    alive_[i] = holds_value_[i] = false;
  }
}

void ParameterGradients::Drop(int index) {
  builder_->Free(gradients_[index].buffer);
  alive_[index] = holds_value_[index] = false;
}

Slice ParameterGradients::Gradient(int index) {
  if (!alive_[index]) builder_->Alloc(gradients_[index].buffer);
  alive_[index] = true;
  return gradients_[index];
}

}  // namespace windtunnel
