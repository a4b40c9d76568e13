#include "scenarios/scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "scenarios/characters.h"

namespace windtunnel {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Removes the digits that `text` starts with, and returns their number.
size_t SkipDigits(std::string_view& text) {
  size_t count = static_cast<size_t>(std::find_if_not(text.begin(), text.end(), IsDigit) - text.begin());
  text.remove_prefix(count);
  return count;
}

void SkipSign(std::string_view& text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
}

// "0", "-12", "+3"; not "007".
bool IsInteger(std::string_view text) {
  SkipSign(text);
  bool leading_zero = text.size() > 1 && text[0] == '0';
  return SkipDigits(text) > 0 && text.empty() && !leading_zero;
}

// std::from_chars does not accept a plus sign.
std::string_view WithoutPlus(std::string_view text) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  return text;
}

// How to write 1_000, 1,000 or 007 instead; empty if `text` is not of that form.
std::string WithoutDecoration(const std::string& text) {
  std::string plain;
  std::copy_if(text.begin(), text.end(), std::back_inserter(plain),
               [](char c) { return c != '_' && c != ','; });
  size_t first = plain.find_first_not_of('0');
  if (first == std::string::npos || !IsDigit(plain[first])) return "";
  plain.erase(0, first);
  return plain != text && IsInteger(plain) ? plain : "";
}

// How to write 1e9 or 1.5e7 instead; empty if `text` is not of that form, or no whole number.
std::string WithoutExponent(const std::string& text) {
  constexpr double kMost = 1e15;
  if (!IsNumber(text) || text.find_first_of("eE") == std::string::npos) return "";
  const double value = std::strtod(text.c_str(), nullptr);
  if (!(std::abs(value) <= kMost) || value != std::floor(value)) return "";
  return std::to_string(static_cast<int64_t>(value));
}

// "25MB", "1.5 GiB"; not "1e3", "0x10" or "1:30", which have digits behind the letters.
bool HasUnit(std::string_view text) {
  const auto is_of_unit = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '%'; };
  SkipSign(text);
  size_t digits = SkipDigits(text);
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    digits += SkipDigits(text);
  }
  if (!text.empty() && text[0] == ' ') text.remove_prefix(1);
  return digits > 0 && !text.empty() && std::all_of(text.begin(), text.end(), is_of_unit);
}

// The words to add to "expected …" if the value would be valid without its unit.
std::string WithoutUnit(const YamlNode& node) {
  return node.is_plain() && HasUnit(node.text) ? " without a unit" : "";
}

// As YAML 1.2's core schema has them; Python writes the second.
bool IsTrue(std::string_view text) { return text == "true" || text == "True" || text == "TRUE"; }
bool IsFalse(std::string_view text) { return text == "false" || text == "False" || text == "FALSE"; }
bool IsBoolean(std::string_view text) { return IsTrue(text) || IsFalse(text); }

// Without the fraction of "8.0", which JSON Schema counts among the integers.
std::string_view WithoutZeroFraction(std::string_view text) {
  const size_t point = text.find('.');
  const bool is_whole = point != std::string_view::npos && point + 1 < text.size() &&
                        text.find_first_not_of('0', point + 1) == std::string_view::npos;
  return is_whole ? text.substr(0, point) : text;
}

// The words to add to "expected …" if the value would be valid without its quotes.
std::string WithoutQuotes(const YamlNode& node, bool would_do) {
  return node.is_scalar() && node.quoted && would_do ? " without quotes" : "";
}

}  // namespace

bool IsNumber(std::string_view text) {
  SkipSign(text);
  size_t digits = SkipDigits(text);
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    digits += SkipDigits(text);
  }
  if (digits == 0) return false;
  if (!text.empty() && (text[0] == 'e' || text[0] == 'E')) {
    text.remove_prefix(1);
    SkipSign(text);
    if (SkipDigits(text) == 0) return false;
  }
  return text.empty();
}

Reading<int64_t> ReadInteger(const YamlNode& node) {
  const std::string expected = "a whole number";
  if (!node.is_plain()) return tl::unexpected(expected + WithoutQuotes(node, IsNumber(node.text)));
  if (!IsInteger(WithoutZeroFraction(node.text))) {
    std::string plain = WithoutDecoration(node.text);
    if (plain.empty()) plain = WithoutExponent(node.text);
    if (node.text == "auto")
      return tl::unexpected(expected + ": only Hugging Face's Trainer fills in 'auto'");
    if (plain.empty()) return tl::unexpected(expected + WithoutUnit(node));
    return tl::unexpected(fmt::format("{} in digits only ({})", expected, plain));
  }
  const std::string_view text = WithoutPlus(WithoutZeroFraction(node.text));
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return tl::unexpected(std::string("a whole number of at most 63 bits"));
  return value;
}

Reading<double> ReadNumber(const YamlNode& node) {
  if (!node.is_plain() || !IsNumber(node.text)) {
    std::string plain = node.is_plain() ? WithoutDecoration(node.text) : "";
    if (!plain.empty()) return tl::unexpected(fmt::format("a number without separators ({})", plain));
    return tl::unexpected("a number" + WithoutQuotes(node, IsNumber(node.text)) + WithoutUnit(node));
  }
  std::string_view text = WithoutPlus(node.text);
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return tl::unexpected(std::string("a number in the range of a double"));
  return value;
}

Reading<bool> ReadBoolean(const YamlNode& node) {
  if (node.is_plain() && IsTrue(node.text)) return true;
  if (node.is_plain() && IsFalse(node.text)) return false;
  return tl::unexpected("true or false" + WithoutQuotes(node, IsBoolean(node.text)));
}

Reading<std::string> ReadText(const YamlNode& node) {
  if (!node.is_scalar()) return tl::unexpected(std::string("text"));
  if (!node.quoted && (IsNumber(node.text) || IsBoolean(node.text))) {
    return tl::unexpected(fmt::format("text (write \"{}\")", node.text));
  }
  if (HasControlCharacters(node.text)) return tl::unexpected(std::string("text without control characters"));
  return node.text;
}

}  // namespace windtunnel
