#include "scenarios/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "scenarios/suggest.h"

namespace windtunnel {

std::string Bounds::Violation(double value) const {
  if (value < min || (above_min && value == min))
    return fmt::format("{} {}", above_min ? "more than" : "at least", min);
  if (value > max || (below_max && value == max))
    return fmt::format("{} {}", below_max ? "less than" : "at most", max);
  return "";
}

bool TextRule::Accepts(const std::string& text) const {
  if (text.empty()) return false;
  if (other == Other::kAnything || std::find(words.begin(), words.end(), text) != words.end()) return true;
  return other == Other::kCsvFile && text.size() > 4 && text.ends_with(".csv");
}

std::string TextRule::Expected() const {
  if (!summary.empty()) return std::string(summary);
  if (other == Other::kAnything)
    return words.empty() ? "text" : fmt::format("a name such as {}", words.front());
  std::vector<std::string> choices = words;
  if (other == Other::kCsvFile) choices.push_back(kCsvFile);
  return JoinWithOr(choices);
}

}  // namespace windtunnel
