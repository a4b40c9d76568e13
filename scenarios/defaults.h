// Defaults that depend on other keys. The constant ones are in scenario.h.
#pragma once

#include "scenarios/scenario.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {

// Fills in what `root`, the tree that `scenario` was read from, does not give. `name` is the file's name.
void CompleteDefaults(const YamlNode& root, const std::string& name, Scenario& scenario);

// data x pipeline x tensor x context. A double, since the product of four unchecked sizes may not fit 64
// bits.
double UncheckedWorldSize(const ParallelSpec& parallel);

}  // namespace windtunnel
