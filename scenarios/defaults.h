// Defaults that depend on other keys; the constant ones stand in scenario.h.
#pragma once

#include "scenarios/scenario.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {

// Fills in what `root`, from which `scenario` was read, does not give. `name` is the file's.
void CompleteDefaults(const YamlNode& root, const std::string& name, Scenario& scenario);

// data x pipeline x tensor x context as a double, since the product of four unchecked sizes may not fit 64
// bits.
double UncheckedWorldSize(const ParallelSpec& parallel);

}  // namespace windtunnel
