#include "plan/fsdp_units.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace windtunnel {
namespace {

std::vector<std::string> Parts(const std::string& name) {
  std::vector<std::string> parts(1);
  for (char c : name) {
    if (c == '.') parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

bool IsNumber(const std::string& part) { return part.find_first_not_of("0123456789") == std::string::npos; }

bool Matches(const std::string& name, const std::string& pattern) {
  const std::vector<std::string> a = Parts(name), b = Parts(pattern);
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](const auto& x, const auto& y) { return y == "*" || x == y; });
}

class Wrapper {
 public:
  Wrapper(const std::vector<Module>& modules, const std::vector<Parameter>& parameters,
          const WrapPolicy& policy, bool is_whole, bool is_tied)
      : modules_(modules),
        parameters_(parameters),
        policy_(policy),
        is_whole_(is_whole),
        is_tied_(is_tied),
        wrapped_(modules.size(), false) {}

  Result<std::vector<FsdpUnit>> Run() {
    for (size_t m = 0; m < modules_.size(); ++m)
      wrapped_[m] = modules_[m].is_root() || HoldsExperts(modules_[m]);
    switch (policy_.kind) {
      case WrapPolicy::Kind::kRoot:
        break;
      case WrapPolicy::Kind::kBlock:
        WrapBlocks();
        break;
      case WrapPolicy::Kind::kSize:
        for (size_t m = 0; m < modules_.size(); ++m) {
          if (modules_[m].is_root()) WrapBySize(static_cast<ModuleId>(m));
        }
        break;
      case WrapPolicy::Kind::kModules:
        WT_RETURN_IF_ERROR(WrapNamed());
        break;
    }
    return Units();
  }

 private:
  bool HoldsExperts(const Module& module) const {
    return std::any_of(module.parameters.begin(), module.parameters.end(),
                       [&](int parameter) { return parameters_[parameter].is_of_experts(); });
  }

  // Blocks repeat: their names end in a number, directly below the root.
  void WrapBlocks() {
    for (size_t m = 0; m < modules_.size(); ++m) {
      const std::vector<std::string> parts = Parts(modules_[m].name);
      const bool numbered = parts.size() == 2 && IsNumber(parts[1]);
      if (modules_[m].parent >= 0 && modules_[modules_[m].parent].is_root() && numbered) wrapped_[m] = true;
    }
  }

  Status WrapNamed() {
    for (const std::string& pattern : policy_.modules) {
      bool found = false;
      for (size_t m = 0; m < modules_.size(); ++m) {
        if (modules_[m].is_root() || !Matches(modules_[m].name, pattern)) continue;
        found = wrapped_[m] = true;
      }
      if (!found && is_whole_)
        return InvalidInput("parallel.data.wrap: no module is named '{}'; there are {}", pattern,
                            KnownNames());
    }
    return Ok();
  }

  std::string KnownNames() const {
    std::string names;
    std::map<std::string, std::string> last;  // by the name's part before the number
    for (size_t m = 0; m < modules_.size(); ++m) {
      if (modules_[m].is_root()) continue;
      const std::vector<std::string> parts = Parts(modules_[m].name);
      if (parts.size() > 1 && IsNumber(parts[1]) && parts[1] != "0") {
        if (parts.size() == 2) last[parts[0]] = modules_[m].name;
        continue;  // the first of its kind is listed
      }
      names += (names.empty() ? "" : ", ") + modules_[m].name;
    }
    std::vector<std::string> ends;
    for (const auto& [kind, name] : last) ends.push_back(name);
    return ends.empty() ? names : fmt::format("{}, and so on up to {}", names, fmt::join(ends, " and "));
  }

  int64_t OwnElements(ModuleId module) const {
    int64_t elements = 0;
    for (int parameter : modules_[module].parameters) {
      if (!parameters_[parameter].is_of_experts()) elements += parameters_[parameter].elements;
    }
    return elements;
  }

  bool Reaches(int64_t elements) const { return 4 * elements >= policy_.size_bytes; }

  // Elements of the module's whole subtree.
  int64_t Elements(ModuleId module) const {
    int64_t elements = OwnElements(module);
    for (ModuleId child : ChildrenOf(module)) elements += Elements(child);
    return elements;
  }
  std::vector<ModuleId> ChildrenOf(ModuleId module) const {
    std::vector<ModuleId> children;
    for (size_t m = 1; m < modules_.size(); ++m) {
      if (modules_[m].parent == module) children.push_back(static_cast<ModuleId>(m));
    }
    return children;
  }

  // A parameter that two modules share belongs to the root's unit.
  bool HoldsTied(ModuleId module) const {
    const std::vector<int>& own = modules_[module].parameters;
    return is_tied_ &&
           std::any_of(own.begin(), own.end(), [&](int index) { return IsTied(parameters_[index]); });
  }

  // Returns the number of elements below that are in units of their own.
  int64_t WrapBySize(ModuleId module) {
    const int64_t elements = Elements(module);
    if (!Reaches(elements) || (HoldsTied(module) && !modules_[module].is_root())) return 0;
    int64_t in_units = 0;
    for (ModuleId child : ChildrenOf(module)) in_units += WrapBySize(child);
    if (modules_[module].is_root() || !Reaches(elements - in_units)) return in_units;
    wrapped_[module] = true;
    return elements;
  }

  std::vector<FsdpUnit> Units() const {
    std::vector<FsdpUnit> units;
    std::vector<int> unit_of(modules_.size(), 0);
    for (size_t m = 0; m < modules_.size(); ++m) {
      if (wrapped_[m]) {
        unit_of[m] = static_cast<int>(units.size());
        units.push_back({modules_[m].name.empty() ? "root" : modules_[m].name, static_cast<ModuleId>(m), {}});
      } else {
        unit_of[m] = unit_of[modules_[m].parent];
      }
      auto& parameters = units[unit_of[m]].parameters;
      parameters.insert(parameters.end(), modules_[m].parameters.begin(), modules_[m].parameters.end());
    }
    std::erase_if(units, [](const FsdpUnit& unit) { return unit.parameters.empty(); });
    for (FsdpUnit& unit : units) {
      const auto frozen = std::stable_partition(unit.parameters.begin(), unit.parameters.end(),
                                                [&](int index) { return !parameters_[index].is_frozen; });
      std::stable_partition(frozen, unit.parameters.end(),
                            [&](int index) { return !parameters_[index].packed.has_value(); });
    }
    return units;
  }

  const std::vector<Module>& modules_;
  const std::vector<Parameter>& parameters_;
  const WrapPolicy& policy_;
  const bool is_whole_, is_tied_;
  std::vector<bool> wrapped_;
};

}  // namespace

Result<std::vector<FsdpUnit>> MakeUnits(const std::vector<Module>& modules,
                                        const std::vector<Parameter>& parameters, const WrapPolicy& policy,
                                        bool is_whole, bool is_tied) {
  return Wrapper(modules, parameters, policy, is_whole, is_tied).Run();
}

ShardLayout MakeShardLayout(const FsdpUnit& unit, const std::vector<Parameter>& parameters, int ranks,
                            int version) {
  ShardLayout layout;
  auto parts = [&](int64_t count) { return (count + ranks - 1) / ranks; };
  int64_t flat = 0;
  for (int index : unit.parameters) {
    const Parameter& parameter = parameters[index];
    if (version == 1) {
      layout.starts.push_back(flat);
      flat += parameter.elements;
    } else {
      layout.starts.push_back(layout.shard);
      layout.shard_elements.push_back(parts(parameter.shape[0]) * (parameter.elements / parameter.shape[0]));
      layout.shard += layout.shard_elements.back();
    }
  }
  if (version == 1) layout.shard = parts(flat);
  return layout;
}

}  // namespace windtunnel
