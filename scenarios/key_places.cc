#include "scenarios/key_places.h"

#include "base/read_file.h"
#include "scenarios/keys.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {
namespace {

bool IsPartOfKey(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

bool BeginsWithKey(std::string_view message, std::string_view key) {
  if (!message.starts_with(key) || message.size() == key.size()) return false;
  const std::string_view rest = message.substr(key.size());
  if (IsPartOfKey(rest.front())) return false;
  return key.find('.') != std::string_view::npos || rest.starts_with(":") || rest.starts_with(" is ");
}

// The value at `key`; without one, the innermost block of the file on the way to it.
const YamlNode& NodeOrBlock(const YamlNode& root, std::string key) {
  if (const YamlNode* node = root.FindPath(key)) return *node;
  while (true) {
    if (const YamlNode* node = root.FindPath(key); node != nullptr && node->place.source == 0) return *node;
    const size_t dot = key.rfind('.');
    if (dot == std::string::npos) return root;
    key.resize(dot);
  }
}

}  // namespace

std::string KeyOfMessage(const std::string& message) {
  for (const std::string& key : ScenarioKeys())
    if (BeginsWithKey(message, key)) return key;
  return "";
}

std::string PlaceOfMessage(const std::string& message, const std::string& path,
                           const std::vector<Override>& overrides) {
  const std::string key = KeyOfMessage(message);
  if (key.empty()) return "";
  const auto text = ReadFile(path);
  if (!text) return "";
  auto root = ParseYaml(*text, path);
  if (!root || !root->is_block() || !ApplyOverrides(*root, overrides)) return "";
  const Place place = NodeOrBlock(*root, key).place;
  if (place.source > 0) return OverrideName(overrides[static_cast<size_t>(place.source) - 1]);
  return At(path, place);
}

}  // namespace windtunnel
