// The only file that includes toml++. Version 3.3 asserts, and where NDEBUG is defined tells the compiler to
// assume, that a table's name begins as names do, although it reports the mistake further on. So it gets
// neither.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>

#include "scenarios/importers/configuration.h"

namespace windtunnel {
namespace {

std::string TextOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  return "";
}

void Add(const toml::table& table, const std::string& prefix, Settings& settings) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      Add(*inner, name + ".", settings);
      continue;
    }
    Setting setting{name, name, {}};
    if (const toml::array* array = node.as_array())
      for (const toml::node& item : *array) setting.values.push_back(TextOf(item));
    else setting.values.push_back(TextOf(node));
    settings.Add(std::move(setting));
  }
}

}  // namespace

Result<Settings> ReadTomlSettings(const std::string& text, const std::string& source) {
  try {
    const toml::table table = toml::parse(text, source);
    Settings settings(source);
    Add(table, "", settings);
    return settings;
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    return InvalidInput("{}:{}:{}: {}", source, at.line, at.column, error.description());
  }
}

}  // namespace windtunnel
