#include "sim/symmetry.h"

#include <algorithm>

namespace windtunnel {
namespace {

// Ranks of the group on each node that it touches, in order.
std::vector<int> RanksByNode(const Group& group, int devices_per_node) {
  std::vector<int> counts;
  int node = -1;
  for (int rank : group.ranks) {
    if (rank / devices_per_node != node) counts.push_back(0);
    node = rank / devices_per_node;
    ++counts.back();
  }
  return counts;
}

// Whether all ranks of the representative's group are represented within it.
bool IsClosed(const Plan& plan, const Group& group, const std::vector<int>& representatives) {
  return std::all_of(group.ranks.begin(), group.ranks.end(), [&](int rank) {
    const int representative = representatives[plan.role_of_rank[rank]];
    return std::find(group.ranks.begin(), group.ranks.end(), representative) != group.ranks.end();
  });
}

}  // namespace

bool GroupsLieAlike(const Axis& axis, int devices_per_node) {
  const std::vector<int> first = RanksByNode(axis.groups.front(), devices_per_node);
  return std::all_of(axis.groups.begin(), axis.groups.end(),
                     [&](const Group& group) { return RanksByNode(group, devices_per_node) == first; });
}

std::vector<int> RepresentativesOf(const Plan& plan) {
  const ClusterSpec& cluster = plan.scenario.cluster;
  if (cluster.jitter != 0 || cluster.straggler || cluster.slow_link) return {};
  const int devices = static_cast<int>(std::max<int64_t>(cluster.devices_per_node, 1));
  std::vector<int> representatives;
  for (const Role& role : plan.roles) representatives.push_back(role.ranks.front());
  for (const Role& role : plan.roles) {
    for (const Stream& stream : role.streams) {
      if (stream.axis < 0) continue;
      if (!GroupsLieAlike(plan.axes[stream.axis], devices)) return {};
      if (!IsClosed(plan, plan.GroupOf(role.ranks.front(), stream), representatives)) return {};
    }
  }
  return representatives;
}

}  // namespace windtunnel
