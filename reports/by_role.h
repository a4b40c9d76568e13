// Where a step's time goes, by role or by rank. In a pipeline the roles are its stages.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/timeline.h"

namespace windtunnel {

struct RoleTime {
  std::string name;         // of the role: "stage 0", "replica"
  std::vector<int> ranks;   // ascending
  StepBreakdown breakdown;  // the mean over those of the ranks whose step is known
};

// One entry per role with a rank among `by_rank`, in the plan's order. `ranks` are all ranks of the role.
std::vector<RoleTime> TimeByRole(const Plan& plan, const std::vector<RankBreakdown>& by_rank);
// One entry per rank.
std::vector<RoleTime> TimeByRank(const Plan& plan, const std::vector<RankBreakdown>& by_rank);

}  // namespace windtunnel
