#include "scenarios/overrides.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "scenarios/characters.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {
namespace {

// The value of `key` in `block`; added if there is none.
YamlNode& FindOrAdd(YamlNode& block, const std::string& key, Place place) {
  if (YamlNode* found = block.Find(key)) return *found;
  block.keys.push_back({key, place});
  block.items.emplace_back();
  return block.items.back();
}

// Blocks that may be given as a name alone, and the key that the name is the value of.
struct NamedBlock {
  std::string_view path, key;
};
constexpr NamedBlock kNamedBlocks[] = {{"cluster.network", "preset"},
                                       {"cluster.network.intra_node", "kind"},
                                       {"cluster.network.inter_node", "kind"},
                                       {"cluster.topology", "preset"}};

// Replaces a name alone by the block that it stands for, so that another key of the block can be set beside
// it.
void SpellOut(std::string_view path, YamlNode& node) {
  if (!node.is_scalar()) return;
  for (const NamedBlock& named : kNamedBlocks) {
    if (named.path != path) continue;
    YamlNode block;
    block.kind = YamlNode::Kind::kBlock;
    block.place = node.place;
    block.keys.push_back({std::string(named.key), node.place});
    block.items.push_back(std::move(node));
    node = std::move(block);
    return;
  }
}

Status Apply(YamlNode& root, const Override& item, int source) {
  WT_ASSIGN_OR_RETURN(YamlNode value, ParseYaml(item.value, OverrideName(item), source));
  Place place = {source, 1, 1};
  value.place = place;
  YamlNode* node = &root;
  for (size_t start = 0; start <= item.key.size();) {
    size_t dot = std::min(item.key.find('.', start), item.key.size());
    if (node->is_null()) {
      *node = YamlNode{};
      node->kind = YamlNode::Kind::kBlock;
      node->place = place;
    }
    const std::string_view path = std::string_view(item.key).substr(0, start > 0 ? start - 1 : 0);
    SpellOut(path, *node);
    if (!node->is_block()) {
      return InvalidInput("{}: {} is {}, expected a block (set the whole of it instead)", OverrideName(item),
                          path, Found(*node));
    }
    node = &FindOrAdd(*node, item.key.substr(start, dot - start), place);
    start = dot + 1;
  }
  *node = std::move(value);
  return Ok();
}

}  // namespace

Result<Override> ParseOverride(const std::string& text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos) {
    return InvalidInput("--set {}: there is no '=', expected KEY=VALUE such as batch.micro=4", text);
  }
  std::string key = text.substr(0, equals);
  bool has_empty_part =
      key.empty() || key.front() == '.' || key.back() == '.' || key.find("..") != std::string::npos;
  if (has_empty_part) {
    return InvalidInput("--set {}: the key '{}' is incomplete, expected a dotted path such as batch.micro",
                        text, key);
  }
  return Override{std::move(key), text.substr(equals + 1)};
}

std::string OverrideName(const Override& item) {
  return fmt::format("--set {}={}", Printable(item.key), Printable(item.value));
}

Status ApplyOverrides(YamlNode& root, const std::vector<Override>& overrides) {
  Status all = Ok();
  for (size_t i = 0; i < overrides.size(); ++i) {
    Status status = Apply(root, overrides[i], static_cast<int>(i) + 1);
    if (status) continue;
    if (all) all = std::move(status);
    else all.error().others.push_back(std::move(status.error().message));
  }
  return all;
}

}  // namespace windtunnel
