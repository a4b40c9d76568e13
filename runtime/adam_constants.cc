#include "runtime/adam_constants.h"

#include <cmath>

namespace windtunnel {

// In double precision, as torch's Python does: 1 - beta2 loses four digits in fp32.
AdamConstants AdamConstantsOf(const OptimizerSpec& spec, int64_t step) {
  const double t = static_cast<double>(step + 1);
  const bool decoupled = spec.kind == OptimizerKind::kAdamW;
  AdamConstants c;
  c.beta1 = static_cast<float>(spec.beta1);
  c.beta2 = static_cast<float>(spec.beta2);
  c.one_minus_beta1 = static_cast<float>(1.0 - spec.beta1);
  c.one_minus_beta2 = static_cast<float>(1.0 - spec.beta2);
  c.step_size = static_cast<float>(spec.lr / (1.0 - std::pow(spec.beta1, t)));
  c.v_correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(spec.beta2, t)));
  c.eps = static_cast<float>(spec.eps);
  c.decoupled_decay = decoupled ? static_cast<float>(1.0 - spec.lr * spec.weight_decay) : 1.0f;
  c.coupled_decay = decoupled ? 0.0f : static_cast<float>(spec.weight_decay);
  return c;
}

}  // namespace windtunnel
