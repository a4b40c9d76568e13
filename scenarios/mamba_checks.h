// Checks of models with Mamba-2 layers (ModelSpec::mamba).
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

void CheckMamba(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
