// Checks of parallel.data.kind: zero3.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

void CheckZero3(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
