// Conditions on what is recomputed, part of CheckScenario.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

void CheckRecomputation(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
