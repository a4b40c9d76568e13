// The constants of Muon's update, derived from its options. They are the same on every device.
#pragma once

#include "plan/ops.h"

namespace windtunnel {

struct MuonConstants {
  float momentum, one_minus_momentum;
};
inline MuonConstants MuonConstantsOf(const OptimizerSpec& spec) {
  return {static_cast<float>(spec.momentum), static_cast<float>(1.0 - spec.momentum)};
}

// The smallest norm that a direction is divided by.
inline constexpr float kMuonEpsilon = 1e-7f;

// parameter = kept parameter - rate x. `lr_factor`: of the step's learning rate.
struct MuonRates {
  float kept, rate;
};
inline MuonRates MuonRatesOf(const MuonUpdate& op, double lr_factor) {
  const double lr = op.spec.lr * lr_factor;
  return {static_cast<float>(1.0 - lr * op.spec.weight_decay), static_cast<float>(lr * op.adjustment)};
}

}  // namespace windtunnel
