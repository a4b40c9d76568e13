#include "scenarios/importers/shell_pattern.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace windtunnel {
namespace {

// What one character, or with '*' any number of them, may be.
struct Element {
  bool is_star = false, is_any = false;
  bool is_negated = false;
  std::vector<std::pair<unsigned char, unsigned char>> ranges = {};

  bool Allows(char c) const {
    const auto code = static_cast<unsigned char>(c);
    bool is_in = is_any;
    for (const auto& [first, last] : ranges) is_in = is_in || (first <= code && code <= last);
    return is_in != is_negated;
  }
};

Element Only(char c) {
  const auto code = static_cast<unsigned char>(c);
  return {.ranges = {{code, code}}};
}

// Where the set that begins at `begin` ends; npos if it has no end, and is a '[' like any other.
size_t EndOfSet(std::string_view pattern, size_t begin) {
  size_t at = begin + 1;
  if (at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^')) ++at;
  return pattern.find(']', at + 1);  // a first ']' belongs to the set
}

Element SetOf(std::string_view inside) {
  Element set;
  set.is_negated = inside.starts_with('!') || inside.starts_with('^');
  if (set.is_negated) inside.remove_prefix(1);
  for (size_t i = 0; i < inside.size(); ++i) {
    const auto first = static_cast<unsigned char>(inside[i]);
    const bool is_range = i + 2 < inside.size() && inside[i + 1] == '-';
    if (is_range) i += 2;
    set.ranges.emplace_back(first, static_cast<unsigned char>(inside[i]));
  }
  return set;
}

// Nothing for extended patterns and classes of characters.
std::optional<std::vector<Element>> ElementsOf(std::string_view pattern) {
  std::vector<Element> elements;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i], next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == '(' && std::string_view("?*@+!").find(c) != std::string_view::npos) return std::nullopt;
    const size_t end = c == '[' ? EndOfSet(pattern, i) : std::string_view::npos;
    if (c == '*') {
      elements.push_back({.is_star = true});
    } else if (c == '?') {
      elements.push_back({.is_any = true});
    } else if (end != std::string_view::npos) {
      const std::string_view inside = pattern.substr(i + 1, end - i - 1);
      if (inside.find_first_of("[\\") != std::string_view::npos) return std::nullopt;
      elements.push_back(SetOf(inside));
      i = end;
    } else if (c == '\\' && next != '\0') {
      elements.push_back(Only(next));
      ++i;
    } else {
      elements.push_back(Only(c));
    }
  }
  return elements;
}

// A '*' takes as little as possible, and one character more whenever what follows does not match.
bool Matches(std::string_view text, const std::vector<Element>& elements) {
  size_t at = 0, element = 0, after_star = 0, begin = 0;
  bool has_star = false;
  while (at < text.size()) {
    if (element < elements.size() && elements[element].is_star) {
      has_star = true;
      after_star = ++element;
      begin = at;
    } else if (element < elements.size() && elements[element].Allows(text[at])) {
      ++at;
      ++element;
    } else if (has_star) {
      element = after_star;
      at = ++begin;
    } else {
      return false;
    }
  }
  while (element < elements.size() && elements[element].is_star) ++element;
  return element == elements.size();
}

// So that patterns of any file are decided in no time.
constexpr size_t kMostWork = 1'000'000;

}  // namespace

std::optional<bool> MatchesShellPattern(std::string_view text, std::string_view pattern) {
  if (text.size() * pattern.size() > kMostWork) return std::nullopt;
  const auto elements = ElementsOf(pattern);
  if (!elements) return std::nullopt;
  return Matches(text, *elements);
}

std::string LiteralShellPattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::optional<std::string> WithoutShellPattern(std::string_view text, char where, bool is_longest,
                                               std::string_view pattern) {
  if (text.size() * text.size() * pattern.size() > kMostWork) return std::nullopt;
  const auto elements = ElementsOf(pattern);
  if (!elements) return std::nullopt;
  for (size_t i = 0; i <= text.size(); ++i) {
    const size_t count = is_longest ? text.size() - i : i;
    const bool is_end = where == '%';
    if (Matches(is_end ? text.substr(text.size() - count) : text.substr(0, count), *elements))
      return std::string(is_end ? text.substr(0, text.size() - count) : text.substr(count));
  }
  return std::string(text);
}

}  // namespace windtunnel
