// The arithmetic of $((…)) and ((…)) in the shell: whole numbers, + - * / % **, comparisons, ! && ||.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace windtunnel {

// The value of a variable by name; nothing if it has none.
using ShellLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Nothing if the expression has something else in it, a variable without a value, an octal number, a division
// by zero or a number beyond 64 bits. What is true is 1.
std::optional<int64_t> EvaluateShellArithmetic(const std::string& expression, const ShellLookup& lookup = {});

}  // namespace windtunnel
