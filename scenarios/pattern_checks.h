// Checks of models whose layers are given by letters (ModelSpec::has_pattern): Mamba-2's, gated delta
// networks, and those that mix either with attention.
#pragma once

#include "scenarios/checker.h"
#include "scenarios/scenario.h"

namespace windtunnel {

void CheckPatterns(const Scenario& scenario, Checker& check);

}  // namespace windtunnel
