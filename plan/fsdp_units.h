// Which modules are FSDP units, and how a unit's parameters are laid out in shards.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "plan/model_hooks.h"
#include "plan/plan.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// A unit: a wrapped module, with the parameters of its subtree that no wrapped module below it has. The root
// is always one, and so are a layer's experts where ranks share them (Parameter::is_of_experts).
struct FsdpUnit {
  std::string name;  // "blocks.0"; the root's is "root"
  ModuleId module = kRootModule;
  std::vector<int> parameters;  // in registration order, those that are trained first
};

// The units in forward order, the root first. Units without parameters are left out.
//   block  "blocks.N" (and an MLP's layers); the root keeps embedding, final norm and head
//   root   one unit
//   size   as PyTorch's size_based_auto_wrap_policy: a module is wrapped if the parameters that its wrapped
//          children leave reach the size; children first, and only below modules that reach it (bytes of fp32
//          parameters; experts that ranks share do not count). The module with the embedding stays in the
//          root's unit if the head shares the embedding (`is_tied`)
//   names  those modules; `*` stands for one part of a name: "blocks.*.mlp"
// InvalidInput for a name that no module has, unless the modules are those of one stage (`is_whole` false).
Result<std::vector<FsdpUnit>> MakeUnits(const std::vector<Module>& modules,
                                        const std::vector<Parameter>& parameters, const WrapPolicy& policy,
                                        bool is_whole = true, bool is_tied = false);
// Where weights are tied: whether it is the embedding, which is the first parameter.
inline bool IsTied(const Parameter& parameter) { return parameter.ordinal == 0; }

// Version 1: the unit's tensors lie one after the other in a flat parameter, padded at its end to a multiple
// of `ranks`; rank r holds the r-th of `ranks` equal parts. Version 2: every tensor is cut along its first
// dimension into `ranks` parts of ceil(rows / ranks) rows, and a rank's parts of all tensors lie one after
// the other.
struct ShardLayout {
  int64_t shard = 0;  // elements of a rank's part of the unit, padding included
  // Version 1: each tensor's offset in the flat parameter; version 2: its part's offset in the shard.
  std::vector<int64_t> starts;
  std::vector<int64_t> shard_elements;  // version 2: elements of each tensor's part
};
ShardLayout MakeShardLayout(const FsdpUnit& unit, const std::vector<Parameter>& parameters, int ranks,
                            int version);

}  // namespace windtunnel
