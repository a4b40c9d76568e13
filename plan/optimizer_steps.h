// The optimizer's part of a step: gradients summed over tensor ranks where each has a part of the sum, unscaling where the loss was
// scaled, clipping by the global norm, lazily made state, the update.
#pragma once

#include <vector>

#include "plan/collectives.h"
#include "plan/program_builder.h"

namespace windtunnel {

// What the optimizer updates as one tensor: a parameter, or a shard of many. All fp32.
struct OptimizerTarget {
  std::string name;
  Slice values, gradient;
};

class OptimizerSteps {
 public:
  // The states lie in the memory of the values that they belong to. `tensor`: the axis whose ranks have parts of the parameters.
  // `dense_copies`: how many of the ranks that the norm is summed over have the same part of what is not of experts.
  OptimizerSteps(Role& role, const OptimizerSpec& spec, CollectiveStream& tensor,
                 const std::vector<OptimizerTarget>& targets, Framework framework, int dense_copies = 1);

  // Other gradients than before (buffers of another program); everything else must stay the same.
  void SetTargets(std::vector<OptimizerTarget> targets) { targets_ = std::move(targets); }

  // Sums over the tensor axis the gradients that each of its ranks has from its own tokens (Parameter::is_partial_gradient), in one
  // all-reduce. Of a parameter that is sharded as well the rank has, and sums, a part. Gradients in the host's memory are put together
  // there, and go to the device and back on stream `copies`.
  void AddTensorSums(ProgramBuilder& b, StreamId copies = kComputeStream);
  // Divides all gradients by the loss scale, and lets the ranks that hold parts of them, over the axes `agree_over`, agree on whether
  // one overflowed; then updates write nothing. Nothing without loss scaling.
  void AddUnscaling(ProgramBuilder& b, const std::vector<CollectiveStream*>& agree_over);
  // Clips all gradients. `sum_over`: the axes over which the ranks hold parts of them. What several of
  // them hold counts once: copies (Parameter::is_copy), and what every tensor rank has, and `dense_copies`. Nothing without clip_norm.
  void AddClipping(ProgramBuilder& b, bool first, const std::vector<CollectiveStream*>& sum_over);
  // Updates targets [begin, end); `first` makes their state, as torch.optim in its first step.
  OpIndex AddUpdate(ProgramBuilder& b, bool first, int begin, int end, std::string name = "optimizer");

  int targets() const { return static_cast<int>(targets_.size()); }

 private:
  Slice GradientOf(const Parameter& parameter) const;
  GradientNorm NormOf(std::vector<Slice>& gradients) const;

  Role& role_;
  OptimizerSpec spec_;
  CollectiveStream& tensor_;
  int dense_copies_;
  std::vector<OptimizerTarget> targets_;
  int states_per_target_;
  std::vector<Slice> states_;  // first moments of all targets, then second moments
  bool is_multi_tensor_ =
      false;  // PyTorch's, of a device, which makes the roots of all second moments at once
};

}  // namespace windtunnel
