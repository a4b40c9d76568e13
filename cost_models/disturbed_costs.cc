#include "cost_models/disturbed_costs.h"

#include <string>
#include <unordered_set>

#include "cost_models/cost_keys.h"

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

}  // namespace windtunnel
