// The constants of Adam's update, derived from its options. They are the same on every device.
#pragma once

#include <cstdint>

#include "scenarios/optimizer_spec.h"

namespace windtunnel {

// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  p = p decoupled_decay - step_size m /
// (sqrt(v) v_correction + eps), with g the gradient + coupled_decay p.
struct AdamConstants {
  float beta1, beta2, one_minus_beta1, one_minus_beta2;
  float step_size;     // lr / (1 - beta1^t)
  float v_correction;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float decoupled_decay;  // AdamW: 1 - lr * weight_decay, else 1
  float coupled_decay;    // Adam: weight_decay, else 0
};

// The constants of the step that follows `step` others: t = step + 1.
AdamConstants AdamConstantsOf(const OptimizerSpec& spec, int64_t step);

}  // namespace windtunnel
