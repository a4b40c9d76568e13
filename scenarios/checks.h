// Conditions between the keys of a scenario: divisibility, the world size, keys of another kind of model.
#pragma once

#include "base/result.h"
#include "scenarios/reader.h"
#include "scenarios/scenario.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {

// Checks a scenario whose defaults are filled in. `root` is the tree that it was read from; places come from
// it.
void CheckScenario(const Scenario& scenario, const YamlNode& root, Problems& problems);

// The same for a scenario that was derived from another and has no places. Errors: InvalidInput with the
// first condition that does not hold.
Status CheckScenario(const Scenario& scenario);
// Only the conditions on how tensor, context and expert ranks share a model, its sequences and its experts.
Status CheckSplits(const Scenario& scenario);

}  // namespace windtunnel
