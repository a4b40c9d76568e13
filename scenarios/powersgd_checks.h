// Checks of parallel.data.powersgd.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

void CheckPowerSgd(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
