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

bool SendsToPeers(const Program& program) {
  return std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return std::holds_alternative<Send>(op.kind) || std::holds_alternative<Receive>(op.kind);
  });
}

}  // namespace

bool GroupsLieAlike(const Axis& axis, int devices_per_node) {
  const std::vector<int> first = RanksByNode(axis.groups.front(), devices_per_node);
  return std::all_of(axis.groups.begin(), axis.groups.end(),
                     [&](const Group& group) { return RanksByNode(group, devices_per_node) == first; });
}

bool OneRankStandsForAll(const Plan& plan) {
  const ClusterSpec& cluster = plan.scenario.cluster;
  if (plan.roles.size() != 1 || cluster.jitter != 0 || cluster.straggler || cluster.slow_link) return false;
  const int devices = static_cast<int>(std::max<int64_t>(cluster.devices_per_node, 1));
  const Role& role = plan.roles.front();
  for (const Stream& stream : role.streams) {
    if (stream.axis >= 0 && !GroupsLieAlike(plan.axes[stream.axis], devices)) return false;
  }
  return !SendsToPeers(role.steady);
}

}  // namespace windtunnel
