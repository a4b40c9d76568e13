// Keys that a scenario gives but nothing reads: each strategy reads its own keys of `parallel` and ignores
// the rest.
#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace windtunnel {

// One line per reason: "parallel.data.wrap, parallel.data.prefetch have no effect with parallel.data.kind:
// ddp". Considers only keys of `parallel` (and optimizer.fused) whose values are not the defaults. Empty for
// a scenario with ranges (`search`), whose configurations differ in these keys.
std::vector<std::string> KeysWithoutEffect(const Scenario& scenario);

}  // namespace windtunnel
