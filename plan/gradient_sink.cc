#include "plan/gradient_sink.h"

namespace windtunnel {

ParameterGradients::ParameterGradients(Role& role)
    : role_(role), alive_(role.parameters.size(), false), holds_value_(role.parameters.size(), false) {
  for (Parameter& parameter : role.parameters) {
    parameter.gradient = NewBuffer(role, parameter.name + ".grad", parameter.elements, Category::kGradients);
  }
}

void ParameterGradients::ZeroGrad(ProgramBuilder& builder, bool alive_at_start) {
  builder_ = &builder;
  for (size_t i = 0; i < role_.parameters.size(); ++i) {
    if (alive_at_start) builder.Free(role_.parameters[i].gradient.buffer);
    alive_[i] = holds_value_[i] = false;
  }
}

Slice ParameterGradients::Gradient(int index) {
  const Slice gradient = role_.parameters[index].gradient;
  if (!alive_[index]) builder_->Alloc(gradient.buffer);
  alive_[index] = true;
  return gradient;
}

}  // namespace windtunnel
