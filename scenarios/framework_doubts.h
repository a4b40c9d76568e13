// What a scenario has that its framework does not run, or does not run so by default.
#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace windtunnel {

// A sentence for each, to be shown beside a prediction of that framework. None for `windtunnel`.
std::vector<std::string> FrameworkDoubts(const Scenario& scenario);

}  // namespace windtunnel
