// Keys that a scenario gives and nothing reads: strategies take what is theirs of `parallel`, and leave the rest.
#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace windtunnel {

// A line for each reason: "parallel.data.wrap, parallel.data.prefetch have no effect with parallel.data.kind: ddp". Only keys of `parallel`
// with other values than their defaults; none of a scenario with ranges (`search`), whose configurations differ in them.
std::vector<std::string> KeysWithoutEffect(const Scenario& scenario);

}  // namespace windtunnel
