// The meaning of a scalar in a scenario file, without YAML 1.1's traps. Only true and false are booleans (not
// yes, no, on, off). Numbers are decimal, without separators or leading zeros (1_000, 010 and 1:30 are not
// numbers). Nothing is rounded: 3e-4 is the double nearest to 0.0003, and 2.0 is not a whole number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "scenarios/yaml_tree.h"
#include "tl/expected.hpp"

namespace windtunnel {

// A value, or what was expected instead ("a whole number").
template <typename T>
using Reading = tl::expected<T, std::string>;

Reading<int64_t> ReadInteger(const YamlNode& node);
Reading<double> ReadNumber(const YamlNode& node);
Reading<bool> ReadBoolean(const YamlNode& node);
// A plain number, true, false or null is not text unless it is quoted.
Reading<std::string> ReadText(const YamlNode& node);

// Whether `text`, unquoted, is read as a number.
bool IsNumber(std::string_view text);

}  // namespace windtunnel
