// Gradients of parameters that every rank holds whole.
#pragma once

#include <vector>

#include "plan/program_builder.h"

namespace windtunnel {

// Each trained parameter's gradient has its own buffer, allocated when backward first writes it and freed by
// the next step's zero_grad (set_to_none, torch.optim's default), or by Drop.
class ParameterGradients {
 public:
  ParameterGradients(Role& role, DType type);

  // Starts a program: frees what the previous step left (when `alive_at_start`).
  void ZeroGrad(ProgramBuilder& builder, bool alive_at_start);

  Slice Gradient(int index);
  Slice Place(int index) const { return gradients_[index]; }  // does not allocate
  bool HoldsValue(int index) const { return holds_value_[index]; }
  void Wrote(int index) { holds_value_[index] = true; }
  // Frees a gradient that has been used.
  void Drop(int index);

 private:
  ProgramBuilder* builder_ = nullptr;
  std::vector<Slice> gradients_;
  std::vector<bool> alive_, holds_value_;
};

}  // namespace windtunnel
