// Ranks that cannot be told apart are simulated once.
#pragma once

#include "plan/plan.h"

namespace windtunnel {

// Whether rank 0 does at every instant what every other rank does, provided that every cost is a constant: all ranks share
// one role, nothing in the scenario singles one out (a straggler, a slow link, jitter), nobody sends to a peer, and the groups
// of each axis lie alike across nodes of `devices_per_node` ranks, so that their collectives cost the same.
bool OneRankStandsForAll(const Plan& plan);

// Whether every group of the axis has, node by node, as many ranks as its first group.
bool GroupsLieAlike(const Axis& axis, int devices_per_node);

}  // namespace windtunnel
