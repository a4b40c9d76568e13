// Initial values of a Mamba-2 layer (InitializeParameter::Distribution), from a number u that is uniform in
// [0, 1). As in mamba_ssm/modules/mamba2.py.
#pragma once

#include <cmath>

#include "runtime/device_function.h"

namespace windtunnel {

WT_FUNCTION float DecayValue(double u) { return static_cast<float>(std::log(1.0 + 15.0 * u)); }

// The inverse of softplus at the step: step + log(1 - e^-step).
WT_FUNCTION float StepSizeValue(double u) {
  const double least = std::log(1e-3), most = std::log(1e-1);
  const double step = std::exp(least + u * (most - least));
  return static_cast<float>(step + std::log(-std::expm1(-step)));
}

}  // namespace windtunnel
