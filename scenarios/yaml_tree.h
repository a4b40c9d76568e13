// A YAML (or JSON) document as a tree of values that know their places. Only yaml_tree.cc includes yaml-cpp,
// so the library's exceptions, its silent acceptance of duplicate keys and its guesses about types stay
// there.
//
// A scalar keeps its text as written; scenarios/scalars.h decides what it means.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace windtunnel {

// A position in one of several sources: source 0 is the scenario file, n the n-th "--set". Line and column
// count from 1; the column counts bytes, as compilers do.
struct Place {
  int source = 0;
  int line = 1;
  int column = 1;
  auto operator<=>(const Place&) const = default;
};

struct YamlKey {
  std::string name;
  Place place;
};

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kBlock } kind = Kind::kNull;
  std::string text;             // kScalar
  bool quoted = false;          // kScalar: in quotes or a block scalar, so it is text and nothing else
  Place place;                  // for a null: its key's place
  std::vector<YamlKey> keys;    // kBlock: distinct, in file order; keys[i] belongs to items[i]
  std::vector<YamlNode> items;  // kBlock: values; kList: elements

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_block() const { return kind == Kind::kBlock; }
  bool is_plain() const { return is_scalar() && !quoted; }

  // The value of `key` in this block; null if there is none, or if this is not a block.
  const YamlNode* Find(std::string_view key) const;
  YamlNode* Find(std::string_view key);
  // The value at a dotted path below this node, "parallel.data.size".
  const YamlNode* FindPath(std::string_view dotted) const;
};

// `text` between single quotes on one line: control characters escaped, cut after 80 bytes.
std::string Quoted(std::string_view text);

// How messages describe a node that was found: "'two'", "a list", "a block", "empty".
std::string Found(const YamlNode& node);

// The beginning of a message: "FILE:LINE:COLUMN", or only the name for an override, which has no lines.
std::string At(std::string_view name, const Place& place);

// Reads exactly one document. Messages call it `name`, and every place in the tree has source `source`.
// Errors: InvalidInput "NAME:LINE:COLUMN: …" for a syntax error, a duplicate key, a key that is not text, a
// tag, a second document, an unclosed quote, bytes that are not UTF-8, or aliases that expand to more than
// 100,000 values.
Result<YamlNode> ParseYaml(const std::string& text, const std::string& name, int source = 0);

}  // namespace windtunnel
