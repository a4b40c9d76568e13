#include "scenarios/printer.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "scenarios/scalars.h"

namespace windtunnel {
namespace {

bool IsPlainCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' || c == '/';
}

// Whether every YAML reader, of version 1.1 or 1.2, reads unquoted `text` as the same text.
bool IsPlainText(const std::string& text) {
  if (text.empty() || !std::all_of(text.begin(), text.end(), IsPlainCharacter)) return false;
  if (std::isdigit(static_cast<unsigned char>(text[0])) != 0) return text == "1f1b";
  if (text[0] == '-' || text[0] == '.' || IsNumber(text)) return false;
  const std::string lower = LowerCase(text);
  for (std::string_view word : {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}) {
    if (lower == word) return false;
  }
  return true;
}

}  // namespace

std::string YamlText(const std::string& text) {
  if (IsPlainText(text)) return text;
  std::string quoted = "\"";
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

void Printer::Wrap(std::string_view key, const WrapPolicy& wrap, std::string_view) {
  switch (wrap.kind) {
    case WrapPolicy::Kind::kBlock:
      return Line(key, "block");
    case WrapPolicy::Kind::kRoot:
      return Line(key, "root");
    case WrapPolicy::Kind::kSize:
      return Line(key, fmt::format("size:{}", wrap.size_bytes));
    case WrapPolicy::Kind::kModules:
      return List(key, Quoted(wrap.modules));
  }
}

std::vector<std::string> Printer::Quoted(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(YamlText(text));
  return quoted;
}

void Printer::Line(std::string_view key, std::string_view value) {
  out_.append(static_cast<size_t>(indent_), ' ')
      .append(key)
      .append(value.empty() ? ":" : ": ")
      .append(value)
      .append("\n");
}

void Printer::List(std::string_view key, const std::vector<std::string>& values) {
  Line(key, fmt::format("[{}]", fmt::join(values, ", ")));
}

}  // namespace windtunnel
