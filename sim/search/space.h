// The configurations that `windtunnel search` chooses among: every combination of the ranges in the
// scenario's `search:` block that is legal, in a fixed order.
//
// What the ranges leave open follows from the scenario:
//   devices       those of the cluster, unless `data` or `devices` is a range; nodes follow
//   data          devices / (tensor x pipeline x context), unless it is a range
//   global batch  always the scenario's (micro x accumulate x data); accumulate follows, unless it is a range
//   schedule      the scenario's; where that is 1f1b or interleaved and `schedule` is no range: interleaved with several stages a
//                 rank, else 1f1b
//   balance       the scenario's if it has as many stages, else equal stages, whose number must divide the
//                 layers; if `uneven` is true, as if the scenario gave none
//   keys that the user did not give (scenarios/derived.h) are derived as if the file had the
//   configuration's values
// A configuration is legal if the loader accepts it in a file and all of these are whole numbers.
//
//   WT_ASSIGN_OR_RETURN(const SearchSpace space, EnumerateSpace(scenario));
//   for (const Configuration& configuration : space.legal) Predict(ScenarioOf(scenario, configuration));
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenarios/scenario.h"
#include "sim/search/configuration.h"

namespace windtunnel {

struct SearchSpace {
  std::vector<Configuration> legal;
  int64_t combinations = 0;                // of the ranges, legal or not
  std::map<std::string, int64_t> illegal;  // how many, by reason
};

// Chooses the layers of each stage of a pipeline for a scenario that does not give them; by default from
// rough costs, as CompilePlan does.
using ChooseStages = std::function<Result<std::vector<int64_t>>(const Scenario&)>;
Result<std::vector<int64_t>> StagesByRoughCosts(const Scenario& scenario);

// InvalidInput for a scenario without `search:`.
Status CheckRanges(const Scenario& scenario);

// Errors: those of CheckRanges; InvalidInput where no combination is legal (with the reasons).
Result<SearchSpace> EnumerateSpace(const Scenario& scenario, const ChooseStages& choose = StagesByRoughCosts,
                                   const std::function<bool()>& stops = {});

}  // namespace windtunnel
