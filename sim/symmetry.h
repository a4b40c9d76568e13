// Ranks that cannot be told apart are simulated once.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace windtunnel {

// One rank of each role that does at every instant what every other rank of the role does, provided that every cost is a constant;
// empty where ranks must be told apart. Nothing in the scenario may single one out (a straggler, a slow link, jitter); the groups of
// each axis must lie alike across nodes of `devices_per_node` ranks, so that what they do costs the same; and whom a
// representative talks with must be ranks that representatives of the same group stand for.
std::vector<int> RepresentativesOf(const Plan& plan);

// Whether every group of the axis has, node by node, as many ranks as its first group.
bool GroupsLieAlike(const Axis& axis, int devices_per_node);

}  // namespace windtunnel
