#include "reports/by_role.h"

namespace windtunnel {

std::vector<RoleTime> TimeByRank(const Plan& plan, const std::vector<StepBreakdown>& by_rank) {
  std::vector<RoleTime> times;
  for (int rank = 0; rank < static_cast<int>(by_rank.size()); ++rank)
    times.push_back({plan.RoleOf(rank).name, {rank}, by_rank[static_cast<size_t>(rank)]});
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

std::vector<RoleTime> TimeByRole(const Plan& plan, const std::vector<StepBreakdown>& by_rank) {
  std::vector<RankBreakdown> ranks;
  for (const StepBreakdown& parts : by_rank) ranks.push_back({static_cast<int>(ranks.size()), 1, parts});
  return TimeByRole(plan, ranks);
}

}  // namespace windtunnel
