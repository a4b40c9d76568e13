// Activations in the host's memory: what a block's forward keeps for its backward is copied there, and back
// before it is needed (Scenario::activation_offload). The copies are added to a finished sequence of
// operators, in which it is known what forward keeps, and from when to when.
//
// Time is counted in visits: the blocks that the rank goes through, forwards or backwards. A tensor that a
// forward makes in visit v and a backward uses in visit w
//
//   visit v       is copied to the host, behind the last operator of forward that writes it
//   visit v + 2   begins once that copy is done; its memory on the device is then free
//   visit w - 1   when it begins, the copy back begins
//   visit w       waits for it
//
// so each copy has a whole block to hide behind. Tensors with w <= v + 3 stay on the device: they would leave
// it for no visit. Where the host computes, copies run among the computations, the second one right before
// visit w.
#pragma once

#include <functional>
#include <unordered_set>
#include <vector>

#include "plan/plan.h"

namespace windtunnel {

struct ActivationOffload {
  // The streams of the copies in each direction. Both kComputeStream: the host computes.
  StreamId to_host = kComputeStream, to_device = kComputeStream;
  std::function<bool(int layer)> offloads;  // whether the layer's activations leave the device

  // Smaller tensors stay: most of such a copy would be latency. (torchtune's min_offload_size.)
  static constexpr int64_t kLeastElements = 1024;

  bool host_computes() const { return to_host == kComputeStream; }
};

// Adds the copies to the operators of a program and their buffers to the role and to `temporaries`, and has
// backward use what comes back. Of the temporaries, those in `staying` stay where they are. Returns the new
// index of each operator, and last the new number of operators.
std::vector<OpIndex> AddActivationCopies(const ActivationOffload& how, Role& role, std::vector<Op>& ops,
                                         std::vector<BufferId>& temporaries,
                                         const std::unordered_set<BufferId>& staying);

}  // namespace windtunnel
