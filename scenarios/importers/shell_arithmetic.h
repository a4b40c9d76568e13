// The arithmetic of $((…)) and ((…)) in the shell: whole numbers, + - * / % **, comparisons, ! && ||, and
// what they assign.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace windtunnel {

// The value of a variable by name; nothing if it has none.
using ShellLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Nothing if the expression has something else in it, a variable without a value, an octal number, a division
// by zero or a number beyond 64 bits. What is true is 1.
std::optional<int64_t> EvaluateShellArithmetic(const std::string& expression, const ShellLookup& lookup = {});

// N = 4, N *= 2, N <<= 1, ++N, N++.
struct ShellAssignment {
  std::string name;
  std::string value;        // the expression that it gets: "N * (2)"
  bool yields_old = false;  // N++ and N-- are what N was before
};

// Nothing if the expression is no assignment as a whole, or one by another operator.
std::optional<ShellAssignment> AsShellAssignment(const std::string& expression);

// The names to which something within the expression assigns: "A" and "B" of "(A = 2) > B++".
std::vector<std::string> NamesAssignedIn(const std::string& expression);

}  // namespace windtunnel
