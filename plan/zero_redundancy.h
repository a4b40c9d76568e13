// PyTorch's ZeroRedundancyOptimizer (torch/distributed/optim/zero_redundancy_optimizer.py), beside DDP. All
// ranks have the reduced gradients. Each parameter has one rank that keeps its optimizer state and updates
// it; that rank then broadcasts the new values. So ranks have programs of their own.
#pragma once

#include <vector>

#include "plan/collectives.h"
#include "plan/plan.h"

namespace windtunnel {

// How the ranks that hold the same parameters share their update.
struct UpdateSharing {
  CollectiveStream* ranks = nullptr;  // null: this rank updates all parameters itself
  int own = 0;                        // this rank's position among them
  // The parameters of a rank lie in one buffer and are broadcast together (parameters_as_bucket_view);
  // otherwise one by one.
  bool in_buckets = false;
};

// By position of the rank: the parameters that it updates, the largest first. Each goes to the rank that has
// the fewest elements so far (ZeroRedundancyOptimizer._partition_parameters). Without frozen parameters.
//
//   shapes of 10, 7, 6 and 4 elements over two ranks  ->  {{0, 3}, {1, 2}}
std::vector<std::vector<int>> ShareParameters(const std::vector<Parameter>& parameters, int ranks);

}  // namespace windtunnel
