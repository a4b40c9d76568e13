// The parameters and the optimizer's state of a rank that holds all of them. With 16-bit parameters the
// optimizer updates fp32 masters, which are converted to the parameters after each step; or, if
// precision.optimizer says so, the parameters themselves. Frozen parameters have no masters.
#pragma once

#include <vector>

#include "plan/optimizer_steps.h"

namespace windtunnel {

class WholeParameters {
 public:
  // Sets the parameters' placements. `tensor`: the tensor axis. `model_parts`: all axes over which the parts
  // of one model are spread (StrategyContext). `dense_copies` as in NormRanks.
  WholeParameters(Role& role, const Scenario& scenario, CollectiveStream& tensor, int dense_copies,
                  std::vector<CollectiveStream*> model_parts);

  // The values that the model computes with, by parameter.
  const std::vector<Slice>& values() const { return values_; }
  // Allocates the parameters and gives them their initial values.
  void Initialize(ProgramBuilder& b);
  // Clips `gradients` (by parameter, of the type of the values) and updates. `first`: the optimizer makes its
  // state.
  void Update(ProgramBuilder& b, bool first, const std::vector<Slice>& gradients);
  // Converts the masters to the 16-bit parameters.
  void Restore(ProgramBuilder& b);

 private:
  bool has_masters() const { return type_ != updated_; }
  std::vector<OptimizerTarget> Targets(ProgramBuilder& b, const std::vector<Slice>& gradients);

  Role& role_;
  DType type_, updated_;  // of parameters, and of what the optimizer updates
  std::vector<Slice> values_, masters_;  // by parameter; of masters, buffer -1: none
  OptimizerSteps optimizer_;
};

}  // namespace windtunnel
