#include "scenarios/importers/shell_arithmetic.h"

#include <cctype>
#include <charconv>

namespace windtunnel {
namespace {

class Evaluator {
  static constexpr int kMostNested = 100;

 public:
  Evaluator(const std::string& text, const ShellLookup& lookup) : text_(text), lookup_(lookup) {}

  std::optional<int64_t> Value() {
    const std::optional<int64_t> value = Sum();
    return Next() == '\0' ? value : std::nullopt;
  }

 private:
  // The next character that is not blank; 0 at the end.
  char Next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  std::optional<int64_t> Sum() {
    std::optional<int64_t> value = Product();
    for (char c; value && ((c = Next()) == '+' || c == '-');) {
      ++at_;
      const std::optional<int64_t> other = Product();
      int64_t result;
      if (!other || (c == '+' ? __builtin_add_overflow(*value, *other, &result)
                              : __builtin_sub_overflow(*value, *other, &result)))
        return std::nullopt;
      value = result;
    }
    return value;
  }

  std::optional<int64_t> Product() {
    std::optional<int64_t> value = Factor();
    for (char c; value && ((c = Next()) == '*' || c == '/' || c == '%');) {
      ++at_;
      const std::optional<int64_t> other = Factor();
      int64_t result = 0;
      if (!other) return std::nullopt;
      if (c == '*') {
        if (__builtin_mul_overflow(*value, *other, &result)) return std::nullopt;
      } else if (*other <= 0) {
        return std::nullopt;
      } else {
        result = c == '/' ? *value / *other : *value % *other;
      }
      value = result;
    }
    return value;
  }

  std::optional<int64_t> Factor() {
    const char c = Next();
    if ((c == '-' || c == '(') && ++nested_ > kMostNested) return std::nullopt;
    if (c == '-') {
      ++at_;
      const std::optional<int64_t> value = Factor();
      return value && *value != INT64_MIN ? std::optional(-*value) : std::nullopt;
    }
    if (c == '(') {
      ++at_;
      const std::optional<int64_t> value = Sum();
      if (Next() != ')') return std::nullopt;
      ++at_;
      return value;
    }
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const std::string word = text_.substr(begin, at_ - begin);
    if (word.empty()) return std::nullopt;
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) return Number(word);
    const std::optional<std::string> text = lookup_ ? lookup_(word) : std::nullopt;
    return text ? Number(*text) : std::nullopt;
  }

  // Nothing for octal numbers, which begin with a zero.
  static std::optional<int64_t> Number(const std::string& word) {
    const size_t first = word.starts_with('-') ? 1 : 0;
    if (word.size() > first + 1 && word[first] == '0') return std::nullopt;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    return value;
  }

  const std::string& text_;
  const ShellLookup& lookup_;
  size_t at_ = 0;
  int nested_ = 0;  // signs and parentheses so far
};

}  // namespace

std::optional<int64_t> EvaluateShellArithmetic(const std::string& expression, const ShellLookup& lookup) {
  return Evaluator(expression, lookup).Value();
}

}  // namespace windtunnel
