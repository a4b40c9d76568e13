// Whether something else ran while costs were measured.
#pragma once

#include <string>

#include "cost_models/profile.h"
#include "plan/plan.h"

namespace windtunnel {

// The means of the plan's measured kernels, all together, over their medians; 1 if none is measured.
double MeansOverMedians(const Profile& profile, const Plan& plan);

// "the means of operators' times are 2.3 times their medians: did something else run?"; empty up to
// kDisturbedMeans (cost_models/profile_check.h).
std::string DescribeDisturbance(const Profile& profile, const Plan& plan);

}  // namespace windtunnel
