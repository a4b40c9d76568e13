// What must divide what, and what goes with what, where tensor, context and expert ranks share a model, its sequences or its experts: all that
// the loader, the compiler of step programs and searches ask of it.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// REQUIRES: the model has dimensions.
void CheckSplits(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
