// A scenario as the tree of YAML that the loader reads back to the same scenario: the visitor of describe.h
// behind ResolvedTree. A missing optional block, and a link of which nothing is given, is null.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/describe.h"
#include "scenarios/words.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {

// `text` as a YAML scalar that ReadText reads back, in double quotes where plain text would not do.
std::string YamlText(const std::string& text);

// The node on one line, in YAML's flow style; `between` its items.
std::string InOneLine(const YamlNode& node, std::string_view between);
// The block as text: every key on a line, lists of scalars in brackets.
std::string YamlOf(const YamlNode& block);

class Printer {
 public:
  // Adds keys to `block`.
  explicit Printer(YamlNode& block) : block_(block) { block_.kind = YamlNode::Kind::kBlock; }

  template <typename I>
  void Integer(std::string_view key, I value, const Bounds&, std::string_view) {
    Add(key, Plain(fmt::format("{}", value)));
  }
  void Number(std::string_view key, double value, const Bounds&, std::string_view) {
    Add(key, Plain(Shortest(value)));
  }
  void Number(std::string_view key, std::optional<double> value, const Bounds&, std::string_view) {
    Add(key, value ? Plain(Shortest(*value)) : YamlNode());
  }
  void Flag(std::string_view key, bool value, std::string_view) { Add(key, FlagNode(value)); }
  void FlagOrInteger(std::string_view key, bool value, int64_t number, const Bounds&, std::string_view) {
    Add(key, number == 0 ? FlagNode(value) : Plain(fmt::to_string(number)));
  }
  // Empty text stands for a key that was not given, and is not printed.
  void Text(std::string_view key, const std::string& value, const TextRule&, std::string_view) {
    if (!value.empty()) Add(key, TextNode(value));
  }
  void Path(std::string_view key, const std::string& value, const TextRule&, std::string_view) {
    Add(key, TextNode(value));
  }
  void Paths(std::string_view key, const std::vector<std::string>& values, const TextRule&,
             std::string_view) {
    List(key, values, TextNode);
  }
  void Integers(std::string_view key, const std::vector<int64_t>& values, const Bounds&, std::string_view) {
    List(key, values, [](int64_t value) { return Plain(fmt::format("{}", value)); });
  }
  void Flags(std::string_view key, const std::vector<bool>& values, std::string_view) {
    List(key, values, FlagNode);
  }
  void Wrap(std::string_view key, const WrapPolicy& wrap, std::string_view);
  void InputOnly(std::string_view, std::string_view) {}
  void Require(std::string_view) {}
  void RequireWithoutPreset(std::string_view) {}
  bool Covers(bool condition) const { return condition; }

  template <typename E>
  void Word(std::string_view key, E value, std::initializer_list<E>, std::string_view) {
    Add(key, Plain(WordOf(value)));
  }
  template <typename E>
  void Word(std::string_view key, E value, std::string_view) {
    Add(key, Plain(WordOf(value)));
  }
  template <typename E>
  void WordOrPath(std::string_view key, E value, const std::string& path, std::string_view,
                  std::string_view) {
    Add(key, path.empty() ? Plain(WordOf(value)) : TextNode(path));
  }
  template <typename E>
  void WordOrNumber(std::string_view key, E value, double number, const Bounds&, std::string_view) {
    Add(key, Plain(number == 0 ? std::string(WordOf(value)) : Shortest(number)));
  }
  template <typename E>
  void Words(std::string_view key, const std::vector<E>& values, std::string_view) {
    List(key, values, [](E value) { return Plain(WordOf(value)); });
  }

  template <typename T>
  void Block(std::string_view key, T& spec, std::string_view) {
    Add(key, BlockNode(spec));
  }
  template <typename T>
  void OptionalBlock(std::string_view key, std::optional<T>& spec, std::string_view) {
    Add(key, spec ? BlockNode(*spec) : YamlNode());
  }
  template <typename T>
  void Blocks(std::string_view key, std::vector<T>& specs, std::string_view) {
    List(key, specs, [](T& spec) { return BlockNode(spec); });
  }
  // Prints the short form if it says everything.
  template <typename T>
  void TextOrBlock(std::string_view key, std::string_view, const std::string& text, const TextRule&, T& spec,
                   std::string_view) {
    if (spec == T{}) return Add(key, YamlNode());
    Add(key, !text.empty() && spec == ShortForm(spec) ? TextNode(text) : BlockNode(spec));
  }

 private:
  // What the loader makes of the short form of `spec`.
  static LinkSpec ShortForm(const LinkSpec& link) {
    LinkSpec form;
    form.kind = link.kind;
    return form;
  }
  static NetworkSpec ShortForm(const NetworkSpec& network) {
    NetworkSpec form;
    form.preset = network.preset;
    return form;
  }
  static TopologySpec ShortForm(const TopologySpec& topology) {
    TopologySpec form;
    form.preset = topology.preset;
    return form;
  }

  // The fewest digits that read back to the same double. A point goes before an exponent; without one, YAML
  // 1.1 reads the number as text.
  static std::string Shortest(double value) {
    std::string text = fmt::format("{}", value);
    const size_t exponent = text.find('e');
    if (exponent != std::string::npos && text.find('.') == std::string::npos) text.insert(exponent, ".0");
    return text;
  }
  static YamlNode Plain(std::string_view text) {
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.text = text;
    return node;
  }
  static YamlNode FlagNode(bool value) { return Plain(value ? "true" : "false"); }
  static YamlNode TextNode(const std::string& text);
  template <typename T>
  static YamlNode BlockNode(T& spec) {
    YamlNode node;
    Printer inner(node);
    Describe(inner, spec);
    return node;
  }
  void Add(std::string_view key, YamlNode node) {
    block_.keys.push_back({std::string(key), {}});
    block_.items.push_back(std::move(node));
  }
  template <typename Values, typename MakeNode>
  void List(std::string_view key, Values& values, MakeNode make) {
    YamlNode list;
    list.kind = YamlNode::Kind::kList;
    for (auto&& value : values) list.items.push_back(make(value));
    Add(key, std::move(list));
  }

  YamlNode& block_;
};

}  // namespace windtunnel
