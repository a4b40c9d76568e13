// How a plan's operators are named in a profile: shared by the look-up (profile_cost_model.cc) and by the search for what is
// missing (missing_costs.cc), so that what calibration measures is what prediction asks for.
#pragma once

#include <string>

#include "base/units.h"
#include "plan/plan.h"

namespace windtunnel {

// Ranks that run on one node: what kernels are measured with.
int RanksPerNode(const Plan& plan);

// What carries the plan's communication: "gloo", "mpi", "nccl", or "threads" where all ranks share a process (DataParallel).
std::string CommunicatorName(const Plan& plan);
// The same for one group: where it spans nodes, also over what: "gloo over 2 nodes of ethernet 1 Gb/s". What is measured over one network
// says nothing about another.
std::string CommunicatorName(const Plan& plan, const Group& group);
// Nodes that have ranks of the group.
int NodesOf(const Plan& plan, const Group& group);
// The name under which the plan's outside-the-allocator bytes stand: the communicator's, or "none" for one rank.
std::string OutsideAllocatorBackend(const Plan& plan);

// A communication operator in a profile's terms. Both ends of a transfer are the entry "send".
// REQUIRES: IsCommunication(op.kind).
struct TransferKey {
  std::string op;
  Bytes bytes;
};
TransferKey TransferKeyOf(const Op& op);

}  // namespace windtunnel
