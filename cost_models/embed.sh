#!/bin/sh
# Prints a C++ source file that holds JSON files: embed.sh FUNCTION NAMES HEADER FILE... defines FUNCTION(name), a file's text, and NAMES().
set -eu
function=$1
names=$2
header=$3
shift 3
cat <<END
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "$header"

namespace windtunnel {
namespace {

struct Embedded {
  std::string_view name, json;
};
constexpr Embedded kFiles[] = {
END
for file in "$@"; do
  name=${file##*/}
  printf '    {"%s", R"json(' "${name%.json}"
  cat "$file"
  printf ')json"},\n'
done
cat <<END
};

}  // namespace

std::optional<std::string> ${function}(std::string_view name) {
  for (const Embedded& file : kFiles) {
    if (file.name == name) return std::string(file.json);
  }
  return std::nullopt;
}

std::vector<std::string> ${names}() {
  std::vector<std::string> names;
  for (const Embedded& file : kFiles) names.emplace_back(file.name);
  return names;
}

}  // namespace windtunnel
END
