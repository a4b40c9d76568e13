#include "reports/by_role.h"

namespace windtunnel {

StepBreakdown operator+(const StepBreakdown& a, const StepBreakdown& b) {
  return {a.step + b.step,     a.compute + b.compute, a.exposed_communication + b.exposed_communication,
          a.bubble + b.bubble, a.host + b.host,       a.communication + b.communication};
}

StepBreakdown operator/(const StepBreakdown& sum, int64_t count) {
  return {sum.step / count,   sum.compute / count, sum.exposed_communication / count,
          sum.bubble / count, sum.host / count,    sum.communication / count};
}

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
