// Checks of `optimizer`, and of precision.optimizer.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// REQUIRES: the checks of sizes found nothing.
void CheckOptimizer(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
