// "--set KEY=VALUE": values that the command line lays over a scenario file before it is read.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

struct YamlNode;

// An override of the command line, "--set KEY=VALUE": a dotted path and a value in YAML.
struct Override {
  std::string key;
  std::string value;
};

// Splits "parallel.data.size=4"; InvalidInput when there is no "=" or no key.
Result<Override> ParseOverride(const std::string& text);

// "--set KEY=VALUE", the place of an override in messages.
std::string OverrideName(const Override& item);

// Replaces or adds the values in order. Blocks on the way to a key are made where the file has none. The
// places of override n get source n + 1. Keys are not checked here; the reader reports unknown ones. Errors:
// InvalidInput for a value that is not YAML, and for a path that leads through something other than a block.
Status ApplyOverrides(YamlNode& root, const std::vector<Override>& overrides);

}  // namespace windtunnel
