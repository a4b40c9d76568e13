#include "scenarios/importers/shell_condition.h"

#include <cstdint>
#include <string_view>

#include "scenarios/importers/settings.h"
#include "scenarios/importers/shell_arithmetic.h"

namespace windtunnel {
namespace {

bool HasUnknown(std::string_view text) { return text.find(kUnknown) != std::string_view::npos; }

Truth Compare(const std::string& a, const std::string& operation, const std::string& b) {
  if (HasUnknown(a) || HasUnknown(b)) return std::nullopt;
  if (operation == "=" || operation == "==") return a == b;
  if (operation == "!=") return a != b;
  if (operation.size() != 3 || operation[0] != '-') return std::nullopt;
  const std::optional<int64_t> left = EvaluateShellArithmetic(a), right = EvaluateShellArithmetic(b);
  if (!left || !right) return std::nullopt;
  if (operation == "-eq") return *left == *right;
  if (operation == "-ne") return *left != *right;
  if (operation == "-gt") return *left > *right;
  if (operation == "-ge") return *left >= *right;
  if (operation == "-lt") return *left < *right;
  if (operation == "-le") return *left <= *right;
  return std::nullopt;
}

}  // namespace

Truth DecideTest(std::vector<std::string> words) {
  if (!words.empty() && words.front() == "!") {
    words.erase(words.begin());
    const Truth truth = DecideTest(words);
    return truth ? Truth(!*truth) : std::nullopt;
  }
  if (words.size() == 1) return HasUnknown(words[0]) ? Truth() : Truth(!words[0].empty());
  if (words.size() == 2 && (words[0] == "-z" || words[0] == "-n"))
    return HasUnknown(words[1]) ? Truth() : Truth(words[1].empty() == (words[0] == "-z"));
  if (words.size() == 3) return Compare(words[0], words[1], words[2]);
  return std::nullopt;
}

}  // namespace windtunnel
