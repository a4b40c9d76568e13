// The optimizer's part of a step: clipping, lazily made state, the update.
#pragma once

#include <vector>

#include "plan/program_builder.h"

namespace windtunnel {

class OptimizerSteps {
 public:
  OptimizerSteps(Role& role, const OptimizerSpec& spec);

  // Adds the operators; `first` makes the state (torch.optim makes it in the first step).
  void Add(ProgramBuilder& builder, bool first);

 private:
  std::vector<Slice> Gradients() const;

  Role& role_;
  OptimizerSpec spec_;
  std::vector<Slice> states_;  // first moments of all parameters, then second moments
};

}  // namespace windtunnel
