// The configurations that `windtunnel search` chooses among: every combination of the ranges in the scenario's `search:` block that
// is legal, in a fixed order.
//
// What a range leaves open follows from what the scenario says:
//   devices       those of the cluster, unless `data` or `devices` is a range; nodes follow
//   data          devices / (tensor x pipeline x context), unless it is a range
//   global batch  always the scenario's (micro x accumulate x data); accumulate follows, unless it is a range
//   schedule      the scenario's; where that is 1f1b or interleaved and `schedule` is no range: interleaved with several stages a
//                 rank, else 1f1b
//   balance       the scenario's for as many stages as it gives, else stages are equal: their number divides the layers; where `uneven`
//                 is true, as if the scenario gave none
//   what nobody gave (scenarios/derived.h) follows the configuration, as it would if its values stood in the file
// Legal is what the loader accepts of a file, and where all of these come out whole.
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

namespace windtunnel {

struct Configuration {
  int64_t data = 1, tensor = 1, pipeline = 1, context = 1, expert = 1, expert_tensor = 0;
  int64_t micro = 1, accumulate = 1;
  int64_t virtual_stages = 1, shard_size = 0;
  int64_t nodes = 1, devices_per_node = 1;
  DataParallelKind kind = DataParallelKind::kNone;
  Sharding sharding = Sharding::kFullShard;
  std::string schedule;
  Recompute recompute = Recompute::kNone;
  bool overlap = true, sequence = false;
  bool tensor_overlap = false;  // where tensor ranks split tokens
  // Where there are several expert ranks.
  ExpertDispatcher dispatcher = ExpertDispatcher::kAllToAll;
  bool expert_overlap = false;
  bool uneven = false;
  std::vector<int64_t> balance;  // layers of each stage; empty where there is one

  int64_t devices() const { return data * tensor * pipeline * context; }
  bool overlaps_tensor() const { return tensor_overlap && sequence && tensor > 1; }
  bool operator==(const Configuration&) const = default;
};

struct SearchSpace {
  std::vector<Configuration> legal;
  int64_t combinations = 0;                // of the ranges, legal or not
  std::map<std::string, int64_t> illegal;  // how many, by reason
};

// Layers of each stage of a pipeline whose scenario does not say: by default of rough costs, as CompilePlan has them.
using ChooseStages = std::function<Result<std::vector<int64_t>>(const Scenario&)>;
Result<std::vector<int64_t>> StagesByRoughCosts(const Scenario& scenario);

// InvalidInput for a scenario without `search:`.
Status CheckRanges(const Scenario& scenario);

// Errors: those of CheckRanges; InvalidInput where no combination is legal (with the reasons).
Result<SearchSpace> EnumerateSpace(const Scenario& scenario, const ChooseStages& choose = StagesByRoughCosts);

// The scenario with the configuration in place of its own, as the loader makes it of the same values; without `search`.
Scenario ScenarioOf(const Scenario& base, const Configuration& configuration);

// "tensor 8 x pipeline 16 x data 8, 2 virtual stages, micro 1 x 64, zero1, full recomputation"
std::string Describe(const Configuration& configuration);

}  // namespace windtunnel
