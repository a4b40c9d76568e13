// Conditions on scenarios in which tensor, context and expert ranks share a model, its sequences or its
// experts: what must divide what, and which options go together. The loader, the compiler of step programs
// and searches all use them.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// REQUIRES: the model has dimensions.
void CheckSplits(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
