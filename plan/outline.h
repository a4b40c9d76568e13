// What is known of a scenario's plan without compiling it.
#pragma once

#include "plan/plan.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Its scenario, mesh and world size: what costs depend on.
Plan OutlineOf(const Scenario& scenario);

// Its Plan::model.
ModelStatistics StatisticsOf(const Scenario& scenario);

}  // namespace windtunnel
