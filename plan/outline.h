// What is known of a scenario's plan without compiling it.
#pragma once

#include "base/result.h"
#include "plan/plan.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Its scenario, mesh and world size: what costs depend on.
Plan OutlineOf(const Scenario& scenario);

// What CompilePlan refuses of any scenario, whatever its pipeline: sizes that cannot be simulated, splits that do not come out, types that do
// not go together. Errors: those.
Status CheckSupported(const Scenario& scenario);

// Its Plan::model. REQUIRES: CheckSupported.
ModelStatistics StatisticsOf(const Scenario& scenario);

}  // namespace windtunnel
