#include "scenarios/changed_key.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "scenarios/scalars.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {
namespace {

std::string TextOf(const YamlNode& node) {
  if (node.is_scalar()) return node.text;
  if (!node.is_list()) return node.is_null() ? "null" : "a block";
  std::vector<std::string> items;
  for (const YamlNode& item : node.items) items.push_back(TextOf(item));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

// A number may be written in several ways.
bool IsSame(const YamlNode& a, const YamlNode& b) {
  if (TextOf(a) == TextOf(b)) return true;
  if (!a.is_scalar() || !b.is_scalar()) return false;
  const auto number = ReadNumber(a), other = ReadNumber(b);
  return number && other && *number == *other;
}

std::optional<ChangedKey> Compare(const std::string& key, const YamlNode& now, const YamlNode& before,
                                  const std::vector<std::string>& free) {
  if (std::find(free.begin(), free.end(), key) != free.end()) return std::nullopt;
  if (!now.is_block() || !before.is_block()) {
    if (IsSame(now, before)) return std::nullopt;
    return ChangedKey{key, TextOf(now), TextOf(before)};
  }
  for (size_t i = 0; i < now.keys.size(); ++i) {
    const YamlNode* was = before.Find(now.keys[i].name);
    if (was == nullptr) continue;
    if (auto changed = Compare(key + "." + now.keys[i].name, now.items[i], *was, free)) return changed;
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<ChangedKey>> FindChangedKey(const std::string& now, const std::string& before,
                                                 const std::string& block,
                                                 const std::vector<std::string>& free) {
  WT_ASSIGN_OR_RETURN(const YamlNode now_tree, ParseYaml(now, "the scenario"));
  WT_ASSIGN_OR_RETURN(const YamlNode before_tree, ParseYaml(before, "the saved scenario"));
  const YamlNode *of_now = now_tree.FindPath(block), *of_before = before_tree.FindPath(block);
  if (of_now == nullptr || of_before == nullptr) return std::nullopt;
  return Compare(block, *of_now, *of_before, free);
}

}  // namespace windtunnel
