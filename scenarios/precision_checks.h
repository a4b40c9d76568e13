// Checks of precision.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

void CheckPrecision(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
