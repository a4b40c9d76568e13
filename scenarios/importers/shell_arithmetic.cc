#include "scenarios/importers/shell_arithmetic.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <string_view>

namespace windtunnel {
namespace {

class Evaluator {
  static constexpr int kMostNested = 100;

 public:
  Evaluator(const std::string& text, const ShellLookup& lookup) : text_(text), lookup_(lookup) {}

  std::optional<int64_t> Value() {
    const std::optional<int64_t> value = Binary(0);
    return Next() == '\0' ? value : std::nullopt;
  }

 private:
  // How tightly an operator binds its sides.
  struct Operator {
    std::string_view sign;
    int level;
  };
  // The longer of two that begin alike comes first.
  static constexpr Operator kOperators[] = {{"||", 0}, {"&&", 1}, {"==", 2}, {"!=", 2}, {"<=", 3},
                                            {">=", 3}, {"<", 3},  {">", 3},  {"+", 4},  {"-", 4},
                                            {"**", 6}, {"*", 5},  {"/", 5},  {"%", 5}};
  static constexpr int kPower = 6;

  // The next character that is not blank; 0 at the end.
  char Next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  // Null if none is next; shifts and assignments are none.
  const Operator* NextOperator() {
    Next();
    for (const Operator& known : kOperators) {
      if (text_.compare(at_, known.sign.size(), known.sign) != 0) continue;
      const char behind = at_ + known.sign.size() < text_.size() ? text_[at_ + known.sign.size()] : '\0';
      const bool is_other = behind == '=' || (behind == known.sign[0] && known.sign.size() == 1);
      return is_other && known.sign != "-" && known.sign != "+" ? nullptr : &known;
    }
    return nullptr;
  }

  // Operators of `level` and those that bind tighter, from the left.
  std::optional<int64_t> Binary(int level) {
    if (level == kPower) return Power();
    std::optional<int64_t> value = Binary(level + 1);
    while (value) {
      const Operator* found = NextOperator();
      if (found == nullptr || found->level != level) break;
      at_ += found->sign.size();
      const std::optional<int64_t> other = Binary(level + 1);
      value = other ? Result(found->sign, *value, *other) : std::nullopt;
    }
    return value;
  }

  std::optional<int64_t> Power() {
    const std::optional<int64_t> base = Factor();
    const Operator* found = base ? NextOperator() : nullptr;
    if (found == nullptr || found->level != kPower) return base;
    at_ += found->sign.size();
    if (++nested_ > kMostNested) return std::nullopt;
    const std::optional<int64_t> exponent = Power();  // from the right
    if (!exponent || *exponent < 0 || *exponent > 63) return std::nullopt;
    int64_t power = 1;
    for (int64_t i = 0; i < *exponent; ++i)
      if (__builtin_mul_overflow(power, *base, &power)) return std::nullopt;
    return power;
  }

  static std::optional<int64_t> Result(std::string_view sign, int64_t a, int64_t b) {
    int64_t result = 0;
    if (sign == "||") return a != 0 || b != 0;
    if (sign == "&&") return a != 0 && b != 0;
    if (sign == "==") return a == b;
    if (sign == "!=") return a != b;
    if (sign == "<=") return a <= b;
    if (sign == ">=") return a >= b;
    if (sign == "<") return a < b;
    if (sign == ">") return a > b;
    if (sign == "/") return b > 0 ? std::optional(a / b) : std::nullopt;
    if (sign == "%") return b > 0 ? std::optional(a % b) : std::nullopt;
    const bool overflows = sign == "+"   ? __builtin_add_overflow(a, b, &result)
                           : sign == "-" ? __builtin_sub_overflow(a, b, &result)
                                         : __builtin_mul_overflow(a, b, &result);
    return overflows ? std::nullopt : std::optional(result);
  }

  std::optional<int64_t> Factor() {
    const char c = Next();
    if ((c == '-' || c == '!' || c == '(') && ++nested_ > kMostNested) return std::nullopt;
    if (c == '-' || c == '!') {
      ++at_;
      if (c == '-' && at_ < text_.size() && text_[at_] == '-') return std::nullopt;  // --N
      const std::optional<int64_t> value = Factor();
      if (c == '!') return value ? std::optional<int64_t>(*value == 0) : std::nullopt;
      return value && *value != INT64_MIN ? std::optional(-*value) : std::nullopt;
    }
    if (c == '(') {
      ++at_;
      const std::optional<int64_t> value = Binary(0);
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

bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

size_t SkipSpace(std::string_view text, size_t at) {
  while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
  return at;
}
size_t SkipName(std::string_view text, size_t at) {
  while (at < text.size() && IsNameChar(text[at])) ++at;
  return at;
}

// "++", "=", "<<=" and their like, if one begins `text`; else empty. The longer of two comes first.
std::string_view AssigningSign(std::string_view text) {
  constexpr std::string_view kSigns[] = {
      "<<=", ">>=", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "="};
  if (text.starts_with("==")) return "";
  for (const std::string_view sign : kSigns)
    if (text.starts_with(sign)) return sign;
  return "";
}

bool Counts(std::string_view sign) { return sign == "++" || sign == "--"; }

}  // namespace

std::optional<int64_t> EvaluateShellArithmetic(const std::string& expression, const ShellLookup& lookup) {
  return Evaluator(expression, lookup).Value();
}

std::optional<ShellAssignment> AsShellAssignment(const std::string& expression) {
  const std::string_view text = expression;
  size_t at = SkipSpace(text, 0);
  std::string_view sign = AssigningSign(text.substr(at));
  const bool is_prefix = Counts(sign);
  if (is_prefix) at = SkipSpace(text, at + sign.size());
  const size_t end = SkipName(text, at);
  const std::string name(text.substr(at, end - at));
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return std::nullopt;
  at = SkipSpace(text, end);
  if (!is_prefix) {
    sign = AssigningSign(text.substr(at));
    at += sign.size();
  }
  const std::string right(text.substr(at));
  if (Counts(sign)) {
    if (SkipSpace(right, 0) != right.size()) return std::nullopt;
    return ShellAssignment{name, name + " " + sign[0] + " 1", !is_prefix};
  }
  if (sign == "=") return ShellAssignment{name, right};
  if (sign == "<<=") return ShellAssignment{name, name + " * 2 ** (" + right + ")"};
  if (sign.size() != 2 || std::string_view("+-*/%").find(sign[0]) == std::string_view::npos)
    return std::nullopt;
  return ShellAssignment{name, name + " " + sign[0] + " (" + right + ")"};
}

std::vector<std::string> NamesAssignedIn(const std::string& expression) {
  const std::string_view text = expression;
  std::vector<std::string> names;
  std::string_view before;  // the last two signs, without blanks
  for (size_t at = 0; at < text.size();) {
    const size_t end = SkipName(text, at);
    if (end == at) {
      const bool twice = at > 0 && text[at - 1] == text[at];
      if (std::isspace(static_cast<unsigned char>(text[at])) == 0)
        before = twice ? text.substr(at - 1, 2) : text.substr(at, 1);
      ++at;
      continue;
    }
    size_t behind = SkipSpace(text, end);
    if (behind < text.size() && text[behind] == '[')  // an element's
      behind = SkipSpace(text, std::min(text.find(']', behind), text.size() - 1) + 1);
    const bool is_name = std::isdigit(static_cast<unsigned char>(text[at])) == 0;
    const bool is_assigned =
        Counts(before) || (behind < text.size() && !AssigningSign(text.substr(behind)).empty());
    if (is_name && is_assigned) names.emplace_back(text.substr(at, end - at));
    before = "";
    at = end;
  }
  return names;
}

}  // namespace windtunnel
