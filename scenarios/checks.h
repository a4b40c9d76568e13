// What must hold between the keys of a scenario: divisibility, the world size, keys of another kind of model.
#pragma once

#include "scenarios/reader.h"
#include "scenarios/scenario.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {

// Checks a scenario whose defaults are filled in. Places come from `root`, from which it was read.
void CheckScenario(const Scenario& scenario, const YamlNode& root, Problems& problems);

}  // namespace windtunnel
