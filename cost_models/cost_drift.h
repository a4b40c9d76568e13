// How a machine's speed has changed since its costs were measured.
#pragma once

#include "base/result.h"
#include "cost_models/profile.h"
#include "plan/plan.h"

namespace windtunnel {

// How much longer the operators of a steady step take by the costs `now` than by `then`, as a share: 0.05 for 5 % longer. Each is taken
// by itself, with the host's time before it, at its mean: a step of hundreds of operators meets the long times of some. Those of all
// ranks are added up. What overlaps in a step is not told apart, so this is how far the costs have moved, not the step. Errors: InvalidInput
// naming an operator of which either has no cost.
Result<double> CostDrift(const Profile& then, const Profile& now, const Plan& plan);

// What became of costs that had been kept.
struct CostCheck {
  double drift = 0;  // CostDrift from then until now
  bool measured_again = false;
};

}  // namespace windtunnel
