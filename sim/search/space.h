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

namespace windtunnel {

struct Configuration {
  int64_t data = 1, tensor = 1, pipeline = 1, context = 1, expert = 1, expert_tensor = 0;
  int64_t micro = 1, accumulate = 1;
  int64_t virtual_stages = 1, shard_size = 0;
  int64_t nodes = 1, devices_per_node = 1;
  DataParallelKind kind = DataParallelKind::kNone;
  Sharding sharding = Sharding::kFullShard;
  Offload offload = Offload::kNone;
  ContextKind context_kind = ContextKind::kRing;  // has an effect if there are several context ranks
  std::string schedule;
  Recompute recompute = Recompute::kNone;
  int64_t recompute_layers = 0;  // has an effect with kFull
  bool activation_offload = false;
  bool overlap = true, sequence = false;
  bool tensor_overlap = false;  // has an effect if tensor ranks split tokens
  // These have an effect if there are several expert ranks.
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

// Chooses the layers of each stage of a pipeline for a scenario that does not give them; by default from
// rough costs, as CompilePlan does.
using ChooseStages = std::function<Result<std::vector<int64_t>>(const Scenario&)>;
Result<std::vector<int64_t>> StagesByRoughCosts(const Scenario& scenario);

// InvalidInput for a scenario without `search:`.
Status CheckRanges(const Scenario& scenario);

// Errors: those of CheckRanges; InvalidInput where no combination is legal (with the reasons).
Result<SearchSpace> EnumerateSpace(const Scenario& scenario, const ChooseStages& choose = StagesByRoughCosts,
                                   const std::function<bool()>& stops = {});

// The scenario with the configuration's values instead of its own, as the loader would make it from a file
// with these values; without `search`.
Scenario ScenarioOf(const Scenario& base, const Configuration& configuration);

// "tensor 8 x pipeline 16 x data 8, 2 virtual stages, micro 1 x 64, zero1, full recomputation"
std::string Describe(const Configuration& configuration);

}  // namespace windtunnel
