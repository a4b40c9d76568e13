// What a scalar of a scenario file means. YAML 1.1's traps are closed: only true and false are booleans (not
// yes, no, on, off), numbers are decimal without separators or leading zeros (1_000, 010 and 1:30 are not
// numbers), and nothing is rounded: 3e-4 is the double nearest to 0.0003, 2.0 is not a whole number.
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
// A plain number, true, false or null is no text: it needs quotes.
Reading<std::string> ReadText(const YamlNode& node);

// Whether plain `text` is read as a number.
bool IsNumber(std::string_view text);

}  // namespace windtunnel
