// The names of a plan's operators in a profile. The look-up (profile_cost_model.cc) and the search for
// missing costs (missing_costs.cc) share them, so that calibration measures exactly what prediction asks for.
#pragma once

#include <string>

#include "base/units.h"
#include "plan/plan.h"

namespace windtunnel {

// The number of ranks that run on one node, at which kernels are measured.
int RanksPerNode(const Plan& plan);

// What carries the plan's communication: "gloo", "mpi", "nccl", or "threads" if ranks share a process
// (DataParallel).
std::string CommunicatorName(const Plan& plan);
// The same for one group. If the group spans nodes, the name includes the network: "gloo over 2 nodes of
// ethernet 1 Gb/s". Costs measured over one network say nothing about another.
std::string CommunicatorName(const Plan& plan, const Group& group);
// The number of nodes that have ranks of the group.
int NodesOf(const Plan& plan, const Group& group);
// The name of the backend under which a profile keeps the plan's bytes outside the allocator: the
// communicator's, or "none" for one rank.
std::string OutsideAllocatorBackend(const Plan& plan);

// A communication operator in a profile's terms. Both ends of a transfer are the entry "send".
// REQUIRES: IsCommunication(op.kind).
struct TransferKey {
  std::string op;
  Bytes bytes;
};
TransferKey TransferKeyOf(const Op& op);

}  // namespace windtunnel
