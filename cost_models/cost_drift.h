// How a machine's speed has changed since its costs were measured.
#pragma once

#include "base/result.h"
#include "cost_models/profile.h"
#include "plan/plan.h"

namespace windtunnel {

// How much longer the operators of a steady step take by the costs `now` than by `then`, as a share: 0.05 for
// 5 % longer. Operators are costed one by one, with the host's time before each, at their mean: a step of
// hundreds of operators meets the long times of some. The sum is over all ranks. Overlap within a step is not
// considered, so the result says how far the costs have moved, not the step. Errors: InvalidInput naming an
// operator for which either profile has no cost.
Result<double> CostDrift(const Profile& then, const Profile& now, const Plan& plan);

// The outcome of checking costs that were kept from an earlier calibration.
struct CostCheck {
  double drift = 0;  // CostDrift since they were measured
  bool measured_again = false;
};

}  // namespace windtunnel
