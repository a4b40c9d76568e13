// The results of composed steps and of Predict for one scenario.
#pragma once

#include <string>

#include "base/result.h"
#include "base/units.h"
#include "cost_models/profile.h"
#include "scenarios/scenario.h"
#include "sim/composed/composed_step.h"

namespace windtunnel {

// (If the memory cannot be composed, composed_memory is the predicted one.)
struct Both {
  Duration composed_time, predicted_time;
  Bytes composed_memory, predicted_memory;
};

// On A100s, on H100s if the scenario's device is one, and with an fp8 or fp4 recipe on DatasheetFor's device.
// Errors: those of either.
Result<Both> Compare(ComposedSteps& steps, const Scenario& scenario);
// On the device of `profile`.
Result<Both> Compare(ComposedSteps& steps, const Scenario& scenario, const Profile& profile);

// The profile with the scenario's framework, whose layers take longer the more sequences a micro-batch has
// (`calibrate --steps` finds such factors).
Profile WithLayerFactors(const Profile& profile, const Scenario& scenario);

// Fails the test, with `what`, unless the two are equal.
void ExpectSame(ComposedSteps& steps, const Scenario& scenario, const std::string& what);
// Does so for some of the search space's configurations, always the same ones (composed_step_any_test draws
// others).
void ExpectSameInSpace(const Scenario& scenario);

// Small enough to predict in milliseconds. If `wide`, its kernels are long enough for the host to run ahead.
Scenario Base(bool wide);

}  // namespace windtunnel
