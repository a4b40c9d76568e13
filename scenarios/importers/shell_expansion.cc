#include "scenarios/importers/shell_expansion.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "scenarios/importers/settings.h"
#include "scenarios/importers/shell_pattern.h"

namespace windtunnel {
namespace {

constexpr int kDeepest = 20;

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i > 0 ? " " : "") + words[i];
  return text;
}

bool IsKnown(const std::vector<std::string>& words) {
  return std::none_of(words.begin(), words.end(),
                      [](const std::string& word) { return word.find(kUnknown) != std::string::npos; });
}

// Whether it is not known if the text is empty.
bool MayBeEmpty(std::string_view text) {
  bool is_unknown = false;
  for (const char c : text) {
    if (!is_unknown && c != kUnknown) return false;
    is_unknown = c != kUnknownEnd;
  }
  return !text.empty();
}

// The number of "[3]"; nothing for other texts.
std::optional<size_t> IndexIn(std::string_view brackets) {
  size_t index = 0;
  if (brackets.size() < 3 || brackets.front() != '[' || brackets.back() != ']') return std::nullopt;
  const char* end = brackets.data() + brackets.size() - 1;
  const auto [read, error] = std::from_chars(brackets.data() + 1, end, index);
  return error == std::errc() && read == end ? std::optional(index) : std::nullopt;
}

}  // namespace

std::string Unknown(std::string_view name) { return kUnknown + std::string(name) + kUnknownEnd; }

std::string ShellExpansion::Expanded(const std::string& text) const {
  if (depth_ == kDeepest) return Unknown(text);
  ShellExpansion inner(text, variables_);
  inner.depth_ = depth_ + 1;
  inner.splits_ = false;
  WordBuilder builder;
  while (!inner.AtEnd()) inner.ReadPart(builder);
  return builder.word();
}

std::string ShellExpansion::ExpandedPattern(const std::string& text) const {
  if (depth_ == kDeepest) return Unknown(text);
  ShellExpansion inner(text, variables_);
  inner.depth_ = depth_ + 1;
  std::string plain, pattern;
  while (!inner.AtEnd()) inner.ReadPatternPart(plain, pattern);
  return pattern;
}

void ShellExpansion::ReadPart(WordBuilder& builder) {
  const char c = text_[at_];
  if (c == '\'') {
    const size_t end = std::min(text_.find('\'', at_ + 1), text_.size());
    builder.AddQuoted(text_.substr(at_ + 1, end - at_ - 1));
    at_ = std::min(end + 1, text_.size());
  } else if (c == '"') {
    ReadQuoted(builder);
  } else if (c == '$') {
    Expand(builder, /*in_quotes=*/!splits_);
  } else if (c == '`') {
    const size_t end = std::min(text_.find('`', at_ + 1), text_.size());
    builder.AddQuoted(Unknown(text_.substr(at_, end + 1 - at_)));
    at_ = std::min(end + 1, text_.size());
  } else if (c == '\\' && at_ + 1 < text_.size()) {
    builder.AddQuoted(std::string_view(text_).substr(at_ + 1, 1));
    at_ += 2;
  } else {
    builder.AddQuoted(std::string_view(text_).substr(at_++, 1));
  }
}

void ShellExpansion::ReadPatternPart(std::string& text, std::string& pattern) {
  const char c = text_[at_];
  const bool is_quoted = c == '\'' || c == '"' || c == '\\';
  const bool splits = std::exchange(splits_, false);
  WordBuilder part;
  ReadPart(part);
  splits_ = splits;
  text += part.word();
  pattern += is_quoted ? LiteralShellPattern(part.word()) : part.word();
}

void ShellExpansion::ReadQuoted(WordBuilder& builder) {
  if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') builder.AddQuoted("");
  for (++at_; at_ < text_.size() && text_[at_] != '"';) {
    const char c = text_[at_];
    if (c == '$') {
      Expand(builder, /*in_quotes=*/true);
    } else if (c == '\\' && at_ + 1 < text_.size()) {
      if (text_[at_ + 1] != '\n') builder.AddQuoted(std::string_view(text_).substr(at_ + 1, 1));
      at_ += 2;
    } else {
      builder.AddQuoted(std::string_view(text_).substr(at_++, 1));
    }
  }
  if (at_ < text_.size()) ++at_;
}

size_t ShellExpansion::Closing(char open, char close, size_t end) const {
  int depth = 0;
  for (size_t i = at_; i < std::min(end, text_.size()); ++i) {
    if (text_[i] == open) ++depth;
    if (text_[i] == close && --depth == 0) return i;
  }
  return text_.size();
}

std::optional<int64_t> ShellExpansion::Arithmetic(const std::string& expression) const {
  const auto value_of = [this](const std::string& name) -> std::optional<std::string> {
    const auto found = variables_.find(name);
    if (found == variables_.end() || found->second.empty()) return std::nullopt;
    return found->second[0];
  };
  return EvaluateShellArithmetic(Expanded(expression), value_of);
}

void ShellExpansion::Expand(WordBuilder& builder, bool in_quotes) {
  const size_t begin = at_++;
  const auto add = [&](const std::string& text) {
    if (in_quotes) builder.AddQuoted(text);
    else builder.AddSplit(text);
  };
  if (AtEnd()) return builder.AddQuoted("$");
  const char c = text_[at_];
  if (c == '{') {
    const size_t end = Closing('{', '}');
    const std::string inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = std::min(end + 1, text_.size());
    return ExpandBraces(inside, builder, in_quotes);
  }
  if (IsAt("((")) {
    const size_t end = Closing('(', ')');
    const std::string inside = text_.substr(at_ + 2, end - at_ - 3);
    at_ = std::min(end + 1, text_.size());
    const std::optional<int64_t> value = Evaluate(inside);
    if (!value) return builder.AddQuoted(Unknown("((" + inside + "))"));
    return add(std::to_string(*value));
  }
  if (c == '(') {
    const size_t end = Closing('(', ')');
    at_ = std::min(end + 1, text_.size());
    return builder.AddQuoted(Unknown(text_.substr(begin + 1, at_ - begin - 1)));
  }
  if (c == '@' || c == '*') {
    ++at_;
    return ExpandBraces(std::string(1, c), builder, in_quotes);
  }
  if (IsNameChar(c)) {
    size_t end = at_ + 1;
    if (std::isdigit(static_cast<unsigned char>(c)) == 0)
      while (end < text_.size() && IsNameChar(text_[end])) ++end;
    const std::string name = text_.substr(at_, end - at_);
    at_ = end;
    return add(ValueOf(name));
  }
  builder.AddQuoted("$");
}

std::string ShellExpansion::ValueOf(const std::string& name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return Unknown(name);
  return found->second.empty() ? "" : found->second[0];
}

// What stands between the braces of ${…}.
void ShellExpansion::ExpandBraces(const std::string& inside, WordBuilder& builder, bool in_quotes) {
  const auto add = [&](const std::string& text) {
    if (in_quotes) builder.AddQuoted(text);
    else builder.AddSplit(text);
  };
  size_t end = 0;
  while (end < inside.size() && IsNameChar(inside[end])) ++end;
  const std::string name = inside.substr(0, end), rest = inside.substr(end);
  const auto found = variables_.find(name);
  // The script is taken to have no arguments.
  const bool is_of_arguments = inside.starts_with('@') || inside.starts_with('*');
  if (name.empty() && !is_of_arguments) return builder.AddQuoted(Unknown(inside));
  if (is_of_arguments || rest == "[@]" || rest == "[*]") {
    if (!is_of_arguments && found == variables_.end()) return builder.AddQuoted(Unknown(name));
    const std::vector<std::string> elements = is_of_arguments ? std::vector<std::string>{} : found->second;
    const bool are_words = inside.starts_with('@') || rest == "[@]";
    return in_quotes && splits_ && are_words ? builder.AddElements(elements) : add(Joined(elements));
  }
  add(rest.empty() ? ValueOf(name) : Operated(name, rest));
}

std::string ShellExpansion::Operated(const std::string& name, const std::string& operation) {
  const char sign = operation[operation[0] == ':' && operation.size() > 1 ? 1 : 0];
  if (sign == '-' || sign == '=' || sign == '+' || sign == '?') return WithDefault(name, operation);
  const auto found = variables_.find(name);
  if (found == variables_.end()) return Unknown(name + operation);
  if (const std::optional<size_t> index = IndexIn(operation); index && IsKnown(found->second))
    return *index < found->second.size() ? found->second[*index] : "";
  const std::string value = ValueOf(name);
  if (IsKnown({value}) && (operation[0] == '%' || operation[0] == '#')) {
    const bool is_longest = operation.size() > 1 && operation[1] == operation[0];
    const std::string pattern = ExpandedPattern(operation.substr(is_longest ? 2 : 1));
    const auto shorter = WithoutShellPattern(value, operation[0], is_longest, pattern);
    if (shorter && IsKnown({pattern})) return *shorter;
  }
  return Unknown(name + operation);
}

std::string ShellExpansion::WithDefault(const std::string& name, const std::string& operation) {
  const bool with_colon = operation[0] == ':';
  const char sign = operation[with_colon ? 1 : 0];
  const std::string value = ValueOf(name);
  const bool has_value = variables_.contains(name) && !(with_colon && value.empty());
  if (sign == '?' || (has_value && sign != '+')) return value;
  if (sign == '+' && (!variables_.contains(name) || MayBeEmpty(value))) return Unknown(name + operation);
  if (sign == '+' && !has_value) return "";
  const std::string word = Expanded(operation.substr(with_colon ? 2 : 1));
  if (sign == '=') AssignDefault(name, word);
  return word;
}

}  // namespace windtunnel
