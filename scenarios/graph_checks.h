// Conditions on what is launched as CUDA graphs, part of CheckScenario.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

void CheckGraphs(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
