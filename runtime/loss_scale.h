// The update of the loss scale after a step (UpdateLossScale in plan/ops.h), the same on every device.
#pragma once

#include <limits>

#include "plan/ops.h"

#if defined(__CUDACC__)
#define WT_EVERYWHERE __host__ __device__
#else
#define WT_EVERYWHERE
#endif

namespace windtunnel {

// As torch._amp_update_scale_: a scale that would become infinite keeps its value. numbers:
// [kLossScaleNumbers].
WT_EVERYWHERE inline void UpdateScale(const UpdateLossScale& op, bool found_inf, float* numbers) {
  float &scale = numbers[0], &growth_tracker = numbers[1], &skipped_steps = numbers[2];
  if (found_inf) {
    skipped_steps += 1;
    growth_tracker = 0;
    if (op.dynamic) scale *= static_cast<float>(op.backoff_factor);
    return;
  }
  growth_tracker += 1;
  if (!op.dynamic || growth_tracker < static_cast<float>(op.growth_interval)) return;
  const float grown = scale * static_cast<float>(op.growth_factor);
  if (grown <= std::numeric_limits<float>::max()) scale = grown;
  growth_tracker = 0;
}

}  // namespace windtunnel
