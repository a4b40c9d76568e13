// Where a model's backward puts gradients. Models (plan/model.h) know only this; a data-parallel strategy implements it to hook
// itself in, as PyTorch's reducer hooks the gradient accumulators.
#pragma once

#include <vector>

#include "plan/program_builder.h"

namespace windtunnel {

class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Where parameter `index` (registration order) has its gradient, allocated if need be.
  virtual Slice Gradient(int index) = 0;
  // Whether the gradient already holds a value of this step, to be added to.
  virtual bool HoldsValue(int index) const = 0;
  // The last operator that writes this gradient in this micro-batch has been added.
  virtual void Ready(int index) = 0;
};

// A buffer of its own for every parameter's gradient, allocated when backward first writes it and freed by the next
// step's zero_grad (set_to_none, as torch.optim's default).
class ParameterGradients : public GradientSink {
 public:
  // Sets role.parameters[*].gradient. The role's gradients are alive at the start of a program iff `alive_at_start`.
  explicit ParameterGradients(Role& role);

  // Starts a program: frees what the previous step left (when `alive_at_start`).
  void ZeroGrad(ProgramBuilder& builder, bool alive_at_start);

  Slice Gradient(int index) override;
  bool HoldsValue(int index) const override { return holds_value_[index]; }
  void Ready(int index) override { holds_value_[index] = true; }

 private:
  Role& role_;
  ProgramBuilder* builder_ = nullptr;
  std::vector<bool> alive_, holds_value_;
};

}  // namespace windtunnel
