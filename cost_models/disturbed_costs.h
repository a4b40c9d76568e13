// Whether something else ran while costs were measured.
#pragma once

#include "cost_models/profile.h"
#include "plan/plan.h"

namespace windtunnel {

// The means of the plan's measured kernels, all together, over their medians: above kDisturbedMeans
// (cost_models/profile_check.h) they had to wait for their core now and then. 1 if none is measured.
double MeansOverMedians(const Profile& profile, const Plan& plan);

}  // namespace windtunnel
