#include "scenarios/difference.h"

#include <fmt/ranges.h>

#include <string>

#include "scenarios/derived.h"
#include "scenarios/keys.h"
#include "scenarios/load.h"
#include "scenarios/printer.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {
namespace {

// On one line, without spaces where it can: a shell takes most of these for one word.
std::string FlowText(const YamlNode& node) {
  if (node.is_null()) return "null";
  if (node.is_scalar()) return node.quoted ? YamlText(node.text) : node.text;
  std::vector<std::string> items;
  for (size_t i = 0; i < node.items.size(); ++i)
    items.push_back((node.is_block() ? node.keys[i].name + ": " : "") + FlowText(node.items[i]));
  const std::string all = fmt::format("{}", fmt::join(items, ","));
  return node.is_block() ? "{" + all + "}" : "[" + all + "]";
}

const YamlNode& In(const YamlNode& block, const std::string& key) {
  static const YamlNode nothing;
  const YamlNode* found = block.Find(key);
  return found == nullptr ? nothing : *found;
}

// Where `made` is neither as the file says nor as the loader would have it beside the other overrides.
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

YamlNode TreeOf(Scenario scenario) {
  scenario.search.reset();
  return ParseYaml(ResolvedYaml(scenario), "the resolved scenario").value();
}

}  // namespace

std::vector<Override> OverridesThatMake(const Scenario& made, const Scenario& base) {
  Scenario loaded = made;
  loaded.parallel = WithDerivedKeys(base.derived, made.cluster, made.parallel);
  std::vector<Override> overrides;
  Compare("", TreeOf(made), TreeOf(base), TreeOf(loaded), overrides);
  return overrides;
}

}  // namespace windtunnel
