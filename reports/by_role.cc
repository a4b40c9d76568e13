#include "reports/by_role.h"

namespace windtunnel {

std::vector<RoleTime> TimeByRank(const Plan& plan, const std::vector<StepBreakdown>& by_rank) {
  std::vector<RoleTime> times;
  for (int rank = 0; rank < static_cast<int>(by_rank.size()); ++rank)
    times.push_back({plan.RoleOf(rank).name, {rank}, by_rank[static_cast<size_t>(rank)]});
  return times;
}

std::vector<RoleTime> TimeByRole(const Plan& plan, const std::vector<Timeline>& timelines) {
  std::vector<BreakdownMean> means(plan.roles.size());
  for (const Timeline& timeline : timelines) {
    const Role& role = plan.RoleOf(timeline.rank);
    means[plan.role_of_rank[timeline.rank]].Add(BreakDown(timeline, role, role.steady), timeline.stands_for);
  }
  std::vector<RoleTime> times;
  for (size_t role = 0; role < plan.roles.size(); ++role)
    if (!means[role].empty())
      times.push_back({plan.roles[role].name, plan.roles[role].ranks, means[role].Mean()});
  return times;
}

}  // namespace windtunnel
