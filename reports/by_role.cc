#include "reports/by_role.h"

namespace windtunnel {

std::vector<RoleTime> TimeByRank(const Plan& plan, const std::vector<RankBreakdown>& by_rank) {
  std::vector<RoleTime> times;
  for (const RankBreakdown& of_rank : by_rank)
    times.push_back({plan.RoleOf(of_rank.rank).name, {of_rank.rank}, of_rank.parts});
  return times;
}

std::vector<RoleTime> TimeByRole(const Plan& plan, const std::vector<RankBreakdown>& by_rank) {
  std::vector<BreakdownMean> means(plan.roles.size());
  for (const RankBreakdown& of_rank : by_rank)
    means[plan.role_of_rank[of_rank.rank]].Add(of_rank.parts, of_rank.stands_for);
  std::vector<RoleTime> times;
  for (size_t role = 0; role < plan.roles.size(); ++role)
    if (!means[role].empty())
      times.push_back({plan.roles[role].name, plan.roles[role].ranks, means[role].Mean()});
  return times;
}

}  // namespace windtunnel
