// The parameters and the optimizer's state of a rank that holds all of them. With 16-bit parameters the
// optimizer updates fp32 masters, which are converted to the parameters after each step; or, if
// precision.optimizer says so, the parameters themselves. Frozen parameters have no masters. Ranks may share
// the update (plan/zero_redundancy.h): then each has masters and states of its own share alone.
#pragma once

#include <vector>

#include "plan/optimizer_steps.h"
#include "plan/zero_redundancy.h"

namespace windtunnel {

class WholeParameters {
 public:
  // Sets the parameters' placements. `tensor`: the tensor axis. `model_parts`: all axes over which the parts
  // of one model are spread (StrategyContext). `dense_copies` as in NormRanks.
  WholeParameters(Role& role, const Scenario& scenario, CollectiveStream& tensor, int dense_copies,
                  std::vector<CollectiveStream*> model_parts, UpdateSharing sharing = {});

  // The values that the model computes with, by parameter.
  const std::vector<Slice>& values() const { return values_; }
  // Allocates the parameters and gives them their initial values.
  void Initialize(ProgramBuilder& b);
  // Clips `gradients` (by parameter, of the type of the values) and updates. `first`: the optimizer makes its
  // state.
  void Update(ProgramBuilder& b, bool first, const std::vector<Slice>& gradients);
  // Updates parameter `index` alone, which is trained, in the backward that has completed its gradient.
  // REQUIRES: ranks do not share the update.
  void UpdateOne(ProgramBuilder& b, bool first, int index, const Slice& gradient);
  // Converts the masters to the 16-bit parameters, of all ranks that share the update.
  void Restore(ProgramBuilder& b);

 private:
  bool has_masters() const { return type_ != updated_; }
  void PlaceInBuckets();
  void InitializeValues(ProgramBuilder& b, int index);
  std::vector<OptimizerTarget> Targets(ProgramBuilder& b, const std::vector<Slice>& gradients);
  Slice GradientInFp32(ProgramBuilder& b, int index, const Slice& gradient) const;
  OptimizerTarget TargetOf(int index, const Slice& gradient) const;
  void ConvertMaster(ProgramBuilder& b, int index);
  void ConvertMasters(ProgramBuilder& b);
  void BroadcastValues(ProgramBuilder& b);

  Role& role_;
  DType type_, updated_;  // of parameters, and of what the optimizer updates
  UpdateSharing sharing_;
  std::vector<std::vector<int>> shares_;  // of the ranks that share the update; none: it is not shared
  std::vector<bool> is_own_;              // by parameter: this rank updates it
  std::vector<Slice> buckets_;            // by rank, with UpdateSharing::in_buckets
  std::vector<Slice> values_, masters_;   // by parameter; of masters, buffer -1: none
  std::vector<int> target_of_;            // by parameter, for UpdateOne
  OptimizerSteps optimizer_;
};

}  // namespace windtunnel
