#include "scenarios/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "scenarios/characters.h"
#include "scenarios/derived.h"
#include "scenarios/keys.h"
#include "scenarios/load.h"
#include "scenarios/printer.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {
namespace {

// Without spaces where possible, so that a shell takes most values for one word.
std::string FlowText(const YamlNode& node) { return InOneLine(node, ","); }

const YamlNode& In(const YamlNode& block, const std::string& key) {
  static const YamlNode nothing;
  const YamlNode* found = block.Find(key);
  return found == nullptr ? nothing : *found;
}

// Adds an override for each key whose value in `made` differs from the file's (`base`), or from the one that
// the loader would derive given the other overrides (`loaded`).
void Compare(const std::string& path, const YamlNode& made, const YamlNode& base, const YamlNode& loaded,
             std::vector<Override>& overrides) {
  if (!made.is_block() || !base.is_block() || !loaded.is_block()) {
    const std::string text = FlowText(made);
    if (text != FlowText(base) || text != FlowText(loaded)) overrides.push_back({path, text});
    return;
  }
  for (size_t i = 0; i < made.keys.size(); ++i) {
    const std::string& key = made.keys[i].name;
    Compare(JoinPath(path, key), made.items[i], In(base, key), In(loaded, key), overrides);
  }
}

// The tree of `scenario` without keys that are long, or may not be text, if both scenarios agree on them.
YamlNode TreeOf(Scenario scenario, const Scenario& other) {
  scenario.search.reset();
  scenario.name.clear();
  scenario.description.clear();
  if (scenario.cluster.topology == other.cluster.topology) scenario.cluster.topology = {};
  if (scenario.framework_file == other.framework_file) scenario.framework_file.clear();
  if (scenario.data == other.data) scenario.data.clear();
  if (scenario.parallel.pipeline.schedule == other.parallel.pipeline.schedule)
    scenario.parallel.pipeline.schedule = PipelineSpec{}.schedule;
  return ResolvedTree(std::move(scenario));
}

// If only one of nodes and devices_per_node is given, the other becomes 1. So both are given together.
void GiveWholeShape(const ClusterSpec& cluster, std::vector<Override>& overrides) {
  const auto gives_shape = [](const Override& item) {
    return item.key == "cluster.nodes" || item.key == "cluster.devices_per_node";
  };
  const auto first = std::find_if(overrides.begin(), overrides.end(), gives_shape);
  if (first == overrides.end()) return;
  const auto at = first - overrides.begin();
  std::erase_if(overrides, gives_shape);
  overrides.insert(overrides.begin() + at,
                   {{"cluster.nodes", fmt::format("{}", cluster.nodes)},
                    {"cluster.devices_per_node", fmt::format("{}", cluster.devices_per_node)}});
}

}  // namespace

Result<std::vector<Override>> OverridesThatMake(const Scenario& made, const Scenario& base) {
  Scenario loaded = made;
  loaded.parallel = WithDerivedKeys(base.derived, made.cluster, made.parallel);
  if (base.derived.reduce) loaded.precision.reduce = DerivedReduce(made);
  std::vector<Override> overrides;
  Compare("", TreeOf(made, base), TreeOf(base, made), TreeOf(loaded, base), overrides);
  GiveWholeShape(made.cluster, overrides);
  for (const Override& override : overrides)
    if (Utf8Prefix(override.value) < override.value.size())
      return InvalidInput("{} is {}, which is not UTF-8", override.key, Printable(override.value));
  return overrides;
}

}  // namespace windtunnel
