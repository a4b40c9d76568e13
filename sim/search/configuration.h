// One choice of a search: the values that it changes in a scenario.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// The scenario with the configuration's values instead of its own, as the loader would make it from a file
// with these values; without `search`.
Scenario ScenarioOf(const Scenario& base, const Configuration& configuration);

// "tensor 8 x pipeline 16 x data 8, 2 virtual stages, micro 1 x 64, zero1, full recomputation"
std::string Describe(const Configuration& configuration);

}  // namespace windtunnel
