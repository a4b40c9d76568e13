// What is known of a scenario's plan without compiling it.
#pragma once

#include "base/result.h"
#include "plan/plan.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// A plan with only its scenario, mesh and world size: what costs depend on.
Plan OutlineOf(const Scenario& scenario);

// Checks what CompilePlan refuses regardless of the pipeline. Errors: sizes that cannot be simulated, splits
// with a remainder, and types that cannot be combined.
Status CheckSupported(const Scenario& scenario);

// The scenario's Plan::model. REQUIRES: CheckSupported.
ModelStatistics StatisticsOf(const Scenario& scenario);

}  // namespace windtunnel
