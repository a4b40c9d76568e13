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

namespace {

// Appends the block's keys, `indent` columns from the left.
void Append(const YamlNode& block, int indent, std::string& out) {
  for (size_t i = 0; i < block.keys.size(); ++i) {
    const YamlNode& node = block.items[i];
    out.append(static_cast<size_t>(indent), ' ').append(block.keys[i].name).append(":");
    const bool has_blocks = node.is_list() && !node.items.empty() && node.items.front().is_block();
    if (!node.is_block() && !has_blocks) {
      out.append(" ").append(InOneLine(node, ", ")).append("\n");
      continue;
    }
    out.append("\n");
    if (node.is_block()) {
      Append(node, indent + 2, out);
      continue;
    }
    for (const YamlNode& item : node.items) {
      const size_t start = out.size();
      Append(item, indent + 4, out);
      out[start + static_cast<size_t>(indent) + 2] = '-';  // the first key's line becomes "- key: value"
    }
  }
}

}  // namespace

std::string InOneLine(const YamlNode& node, std::string_view between) {
  if (node.is_null()) return "null";
  if (node.is_scalar()) return node.quoted ? YamlText(node.text) : node.text;
  std::string all;
  for (size_t i = 0; i < node.items.size(); ++i) {
    if (i > 0) all += between;
    if (node.is_block()) all += node.keys[i].name + ": ";
    all += InOneLine(node.items[i], between);
  }
  return node.is_block() ? "{" + all + "}" : "[" + all + "]";
}

std::string YamlOf(const YamlNode& block) {
  std::string text;
  Append(block, 0, text);
  return text;
}

YamlNode Printer::TextNode(const std::string& text) {
  YamlNode node = Plain(text);
  node.quoted = !IsPlainText(text);
  return node;
}

void Printer::Wrap(std::string_view key, const WrapPolicy& wrap, std::string_view) {
  switch (wrap.kind) {
    case WrapPolicy::Kind::kBlock:
      return Add(key, Plain("block"));
    case WrapPolicy::Kind::kRoot:
      return Add(key, Plain("root"));
    case WrapPolicy::Kind::kSize:
      return Add(key, Plain(fmt::format("size:{}", wrap.size_bytes)));
    case WrapPolicy::Kind::kModules:
      return List(key, wrap.modules, TextNode);
  }
}

}  // namespace windtunnel
