#include "cost_models/disturbed_costs.h"

#include <fmt/format.h>

#include <string>
#include <unordered_set>

#include "cost_models/cost_keys.h"
#include "cost_models/profile_check.h"

namespace windtunnel {

double MeansOverMedians(const Profile& profile, const Plan& plan) {
  if (profile.kernels.empty()) return 1;
  std::unordered_set<std::string> keys;
  for (const Role& role : plan.roles)
    for (const Op& op : role.steady.ops)
      if (!IsCommunication(op.kind)) keys.insert(CostKey(op));
  Duration means, medians;
  for (const KernelEntry& entry : profile.kernels) {
    if (entry.ranks != RanksPerNode(plan) || !keys.contains(entry.key)) continue;
    means += entry.time.Mean();
    medians += entry.time.p50();
  }
  return medians > Duration() ? means / medians : 1;
}

std::string DescribeDisturbance(const Profile& profile, const Plan& plan) {
  const double means = MeansOverMedians(profile, plan);
  if (means <= kDisturbedMeans) return "";
  return fmt::format("the means of operators' times are {:.1f} times their medians: did something else run?",
                     means);
}

}  // namespace windtunnel
