// The optimizer's part of a step: clipping by the global norm, lazily made state, the update.
#pragma once

#include <vector>

#include "plan/collectives.h"
#include "plan/program_builder.h"

namespace windtunnel {

// What the optimizer updates as one tensor: a parameter, or a shard of many. All fp32.
struct OptimizerTarget {
  std::string name;
  Slice values, gradient;
  // What of the gradient counts in the norm: all of it, unless parts are copies that are counted elsewhere.
  std::vector<Slice> counted = {gradient};
};

class OptimizerSteps {
 public:
  // The states lie in the memory of the values that they belong to.
  OptimizerSteps(Role& role, const OptimizerSpec& spec, const std::vector<OptimizerTarget>& targets);

  // Other gradients than before (buffers of another program); everything else must stay the same.
  void SetTargets(std::vector<OptimizerTarget> targets) { targets_ = std::move(targets); }

  // Clips all gradients. `sum_over`: the axes over which the ranks hold parts of them. Nothing without clip_norm.
  void AddClipping(ProgramBuilder& b, bool first, const std::vector<CollectiveStream*>& sum_over);
  // Updates targets [begin, end); `first` makes their state, as torch.optim in its first step.
  OpIndex AddUpdate(ProgramBuilder& b, bool first, int begin, int end, std::string name = "optimizer");

  int targets() const { return static_cast<int>(targets_.size()); }

 private:
  Role& role_;
  OptimizerSpec spec_;
  std::vector<OptimizerTarget> targets_;
  int states_per_target_;
  std::vector<Slice> states_;  // first moments of all targets, then second moments
};

}  // namespace windtunnel
