// What must hold between the keys of a scenario: divisibility, the world size, keys of another kind of model.
#pragma once

#include "base/result.h"
#include "scenarios/reader.h"
#include "scenarios/scenario.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {

// Checks a scenario whose defaults are filled in. Places come from `root`, from which it was read.
void CheckScenario(const Scenario& scenario, const YamlNode& root, Problems& problems);

// The same for one that was made of another, and has no places. Errors: InvalidInput, one thing that does not hold.
Status CheckScenario(const Scenario& scenario);
// What of it is about how tensor, context and expert ranks share a model, its sequences and its experts.
Status CheckSplits(const Scenario& scenario);

}  // namespace windtunnel
