// Conditions on what is recomputed, part of CheckScenario.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Whether any layer of the model has the module.
bool HasModule(const ModelSpec& model, RecomputeModule module);

void CheckRecomputation(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
