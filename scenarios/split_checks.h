// What must divide what where ranks share a model, its sequences or its experts.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

void CheckMlpSplits(const Scenario& scenario, Checker& check);
// Tensor and context ranks of a transformer.
void CheckSplits(const Scenario& scenario, Checker& check);
// Expert ranks, and how tokens go to them.
void CheckExpert(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
