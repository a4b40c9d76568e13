#include "scenarios/importers/shell_condition.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "scenarios/importers/settings.h"
#include "scenarios/importers/shell_arithmetic.h"
#include "scenarios/importers/shell_pattern.h"

namespace windtunnel {
namespace {

bool HasUnknown(std::string_view text) { return text.find(kUnknown) != std::string_view::npos; }

Truth Not(Truth truth) { return truth ? Truth(!*truth) : std::nullopt; }

Truth Compare(const std::string& a, const std::string& operation, const TestWord& b) {
  if (HasUnknown(a) || HasUnknown(b.text)) return std::nullopt;
  if (operation == "=" || operation == "==") return MatchesShellPattern(a, b.pattern);
  if (operation == "!=") return Not(MatchesShellPattern(a, b.pattern));
  if (operation.size() != 3 || operation[0] != '-') return std::nullopt;
  const std::optional<int64_t> left = EvaluateShellArithmetic(a), right = EvaluateShellArithmetic(b.text);
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

Truth Combined(Truth first, char by, Truth second) {
  const Truth decides = by == '|';
  if (first == decides || second == decides) return decides;
  return first && second ? second : std::nullopt;
}

Truth DecideTest(std::vector<TestWord> words) {
  size_t negations = 0;
  while (negations + 1 < words.size() && words[negations].text == "!") ++negations;
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(negations));
  if (negations % 2 == 1) return Not(DecideTest(std::move(words)));
  if (words.empty()) return std::nullopt;
  const std::string& first = words[0].text;
  if (words.size() == 1) return HasUnknown(first) ? Truth() : Truth(!first.empty());
  if (words.size() == 2 && (first == "-z" || first == "-n"))
    return HasUnknown(words[1].text) ? Truth() : Truth(words[1].text.empty() == (first == "-z"));
  if (words.size() == 3) return Compare(first, words[1].text, words[2]);
  return std::nullopt;
}

}  // namespace windtunnel
