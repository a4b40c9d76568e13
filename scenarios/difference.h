// The overrides that turn one scenario into another.
#pragma once

#include <vector>

#include "base/result.h"
#include "scenarios/overrides.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Returns the overrides with which the loader makes `made` from the file of `base`, in the order of
// describe.h. They are all keys that have another value in `made`, or would have without an override, except
// the keys of `search`.
//
// Errors: InvalidInput for a value that is not UTF-8 (a path).
Result<std::vector<Override>> OverridesThatMake(const Scenario& made, const Scenario& base);

}  // namespace windtunnel
