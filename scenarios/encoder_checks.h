// Checks of models with an encoder and a decoder (ModelSpec::encoder), and of relative positions.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

void CheckEncoder(const Scenario& scenario, Checker& check);
void CheckRelativePositions(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
