#!/bin/sh
# Prints a C++ source file that holds the JSON files given as arguments: embed.sh FILE...
set -eu
cat <<'END'
#include "cost_models/device_spec.h"

namespace windtunnel {
namespace {

struct Embedded {
  std::string_view name, json;
};
constexpr Embedded kProfiles[] = {
END
for file in "$@"; do
  name=${file##*/}
  printf '    {"%s", R"json(' "${name%.json}"
  cat "$file"
  printf ')json"},\n'
done
cat <<'END'
};

}  // namespace

std::optional<std::string> EmbeddedProfile(std::string_view name) {
  for (const Embedded& profile : kProfiles) {
    if (profile.name == name) return std::string(profile.json);
  }
  return std::nullopt;
}

std::vector<std::string> EmbeddedProfileNames() {
  std::vector<std::string> names;
  for (const Embedded& profile : kProfiles) names.emplace_back(profile.name);
  return names;
}

}  // namespace windtunnel
