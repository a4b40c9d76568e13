// What makes one scenario of another.
#pragma once

#include <vector>

#include "base/result.h"
#include "scenarios/overrides.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Errors: InvalidInput, where a scenario cannot be written as YAML (a path that is not UTF-8).
//
// The overrides with which the loader makes `made` of the file of `base`, in the order of describe.h: every key that has another value
// in `made`, or would have without one, but for those of `search`.
Result<std::vector<Override>> OverridesThatMake(const Scenario& made, const Scenario& base);

}  // namespace windtunnel
