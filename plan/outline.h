// What is known of a scenario's plan without compiling it.
#pragma once

#include "base/result.h"
#include "plan/plan.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// A plan with only its scenario, mesh and world size: what costs depend on.
Plan OutlineOf(const Scenario& scenario);

// The most forwards of micro-batches by stages.
inline constexpr int64_t kMostActions = 1 << 24;

// Checks what CompilePlan refuses regardless of the pipeline and of the number of operators. Errors: more
// than kMostActions, splits with a remainder, and types that cannot be combined.
Status CheckSupported(const Scenario& scenario);

// Limits the number of a step's operators, which a compiled plan makes one by one. Errors: Unsupported.
Status CheckSize(const Scenario& scenario);

// The scenario's Plan::model. REQUIRES: CheckSupported.
ModelStatistics StatisticsOf(const Scenario& scenario);

}  // namespace windtunnel
