// What composed steps and Predict say of one scenario.
#pragma once

#include "base/result.h"
#include "base/units.h"
#include "scenarios/scenario.h"
#include "sim/composed/composed_step.h"

namespace windtunnel {

// (Where memory is not composed, it is what was predicted.)
struct Both {
  Duration composed_time, predicted_time;
  Bytes composed_memory, predicted_memory;
};

// On A100s, in fp8 on H100s. Errors: whatever either refuses.
Result<Both> Compare(ComposedSteps& steps, const Scenario& scenario);

// Small enough to predict in milliseconds, with kernels long enough for the host to be ahead of, when `wide`.
Scenario Base(bool wide);

}  // namespace windtunnel
