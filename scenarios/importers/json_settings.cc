#include "scenarios/importers/configuration.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {
namespace {

void Add(const YamlNode& node, const std::string& name, Settings& settings) {
  if (node.is_block()) {
    for (size_t i = 0; i < node.keys.size(); ++i)
      Add(node.items[i], name.empty() ? node.keys[i].name : name + "." + node.keys[i].name, settings);
  } else if (node.is_scalar()) {
    settings.Add({name, name, {node.text}});
  } else if (node.is_list()) {
    Setting setting{name, name, {}};
    for (const YamlNode& item : node.items) setting.values.push_back(item.is_scalar() ? item.text : "");
    settings.Add(std::move(setting));
  }
}

}  // namespace

Result<Settings> ReadJsonSettings(const std::string& text, const std::string& source) {
  WT_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, source));
  if (!root.is_block())
    return InvalidInput("{}: found {}, expected a configuration with keys", source, Found(root));
  Settings settings(source);
  Add(root, "", settings);
  return settings;
}

}  // namespace windtunnel
