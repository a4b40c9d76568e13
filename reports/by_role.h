// Where a step's time goes, by role or by rank: of a pipeline, by stage.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/timeline.h"

namespace windtunnel {

struct RoleTime {
  std::string name;         // the role's: "stage 0", "replica"
  std::vector<int> ranks;   // ascending
  StepBreakdown breakdown;  // the mean over those of them that have a timeline

  double bubble_fraction() const {
    return breakdown.step > Duration() ? breakdown.bubble / breakdown.step : 0.0;
  }
};

// A role each, in the plan's order; roles without a timeline are left out. `ranks` are all of the role's.
std::vector<RoleTime> TimeByRole(const Plan& plan, const std::vector<Timeline>& timelines);
// Each rank's.
std::vector<RoleTime> TimeByRank(const Plan& plan, const std::vector<StepBreakdown>& by_rank);

}  // namespace windtunnel
