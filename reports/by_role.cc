#include "reports/by_role.h"

namespace windtunnel {

std::vector<RoleTime> TimeByRank(const Plan& plan, const std::vector<Timeline>& timelines) {
  std::vector<RoleTime> times;
  for (const Timeline& timeline : timelines) {
    const Role& role = plan.RoleOf(timeline.rank);
    times.push_back({role.name, {timeline.rank}, BreakDown(timeline, role, role.steady)});
  }
  return times;
}

std::vector<RoleTime> TimeByRole(const Plan& plan, const std::vector<Timeline>& timelines) {
  std::vector<StepBreakdown> sums(plan.roles.size());
  std::vector<int64_t> counts(plan.roles.size());
  for (const RoleTime& one : TimeByRank(plan, timelines)) {
    const int role = plan.role_of_rank[one.ranks.front()];
    sums[role] = sums[role] + one.breakdown;
    ++counts[role];
  }
  std::vector<RoleTime> times;
  for (size_t role = 0; role < plan.roles.size(); ++role)
    if (counts[role] > 0)
      times.push_back({plan.roles[role].name, plan.roles[role].ranks, sums[role] / counts[role]});
  return times;
}

}  // namespace windtunnel
