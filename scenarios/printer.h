// Prints a scenario as YAML that the loader reads back to the same scenario: the visitor of describe.h behind
// ResolvedYaml. A missing optional block, and a link of which nothing is given, is printed as null.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/describe.h"
#include "scenarios/words.h"

namespace windtunnel {

// `text` as a YAML scalar that ReadText reads back, in double quotes where plain text would not do.
std::string YamlText(const std::string& text);

class Printer {
 public:
  // Appends to `out`; `indent` is the column of the block's keys.
  Printer(std::string& out, int indent) : out_(out), indent_(indent) {}

  template <typename I>
  void Integer(std::string_view key, I value, const Bounds&, std::string_view) {
    Line(key, fmt::format("{}", value));
  }
  void Number(std::string_view key, double value, const Bounds&, std::string_view) {
    Line(key, Shortest(value));
  }
  void Number(std::string_view key, std::optional<double> value, const Bounds&, std::string_view) {
    Line(key, value ? Shortest(*value) : "null");
  }
  void Flag(std::string_view key, bool value, std::string_view) { Line(key, value ? "true" : "false"); }
  void FlagOrInteger(std::string_view key, bool value, int64_t number, const Bounds&, std::string_view doc) {
    if (number == 0) Flag(key, value, doc);
    else Line(key, fmt::to_string(number));
  }
  // Empty text stands for a key that was not given, and is not printed.
  void Text(std::string_view key, const std::string& value, const TextRule&, std::string_view) {
    if (!value.empty()) Line(key, YamlText(value));
  }
  void Path(std::string_view key, const std::string& value, const TextRule&, std::string_view) {
    Line(key, YamlText(value));
  }
  void Paths(std::string_view key, const std::vector<std::string>& values, const TextRule&,
             std::string_view) {
    List(key, Quoted(values));
  }
  void Integers(std::string_view key, const std::vector<int64_t>& values, const Bounds&, std::string_view) {
    std::vector<std::string> texts;
    for (int64_t value : values) texts.push_back(fmt::format("{}", value));
    List(key, texts);
  }
  void Flags(std::string_view key, const std::vector<bool>& values, std::string_view) {
    std::vector<std::string> texts;
    for (bool value : values) texts.emplace_back(value ? "true" : "false");
    List(key, texts);
  }
  void Wrap(std::string_view key, const WrapPolicy& wrap, std::string_view);
  void InputOnly(std::string_view, std::string_view) {}
  void Require(std::string_view) {}
  void RequireWithoutPreset(std::string_view) {}
  bool Covers(bool condition) const { return condition; }

  template <typename E>
  void Word(std::string_view key, E value, std::initializer_list<E>, std::string_view) {
    Line(key, WordOf(value));
  }
  template <typename E>
  void Word(std::string_view key, E value, std::string_view) {
    Line(key, WordOf(value));
  }
  template <typename E>
  void WordOrPath(std::string_view key, E value, const std::string& path, std::string_view,
                  std::string_view) {
    Line(key, path.empty() ? std::string(WordOf(value)) : YamlText(path));
  }
  template <typename E>
  void WordOrNumber(std::string_view key, E value, double number, const Bounds&, std::string_view) {
    Line(key, number == 0 ? std::string(WordOf(value)) : Shortest(number));
  }
  template <typename E>
  void Words(std::string_view key, const std::vector<E>& values, std::string_view) {
    std::vector<std::string> words;
    for (E value : values) words.emplace_back(WordOf(value));
    List(key, words);
  }

  template <typename T>
  void Block(std::string_view key, T& spec, std::string_view) {
    Line(key, "");
    Printer inner(out_, indent_ + 2);
    Describe(inner, spec);
  }
  template <typename T>
  void OptionalBlock(std::string_view key, std::optional<T>& spec, std::string_view doc) {
    if (!spec) return Line(key, "null");
    Block(key, *spec, doc);
  }
  template <typename T>
  void Blocks(std::string_view key, std::vector<T>& specs, std::string_view) {
    if (specs.empty()) return Line(key, "[]");
    Line(key, "");
    for (T& spec : specs) {
      size_t start = out_.size();
      Printer inner(out_, indent_ + 4);
      Describe(inner, spec);
      out_[start + static_cast<size_t>(indent_) + 2] = '-';  // the first key's line becomes "- key: value"
    }
  }
  // Prints the short form if it says everything.
  template <typename T>
  void TextOrBlock(std::string_view key, std::string_view, const std::string& text, const TextRule&, T& spec,
                   std::string_view doc) {
    if (spec == T{}) return Line(key, "null");
    if (!text.empty() && spec == ShortForm(spec)) return Line(key, YamlText(text));
    Block(key, spec, doc);
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
  static std::vector<std::string> Quoted(const std::vector<std::string>& texts);
  void Line(std::string_view key, std::string_view value);
  void List(std::string_view key, const std::vector<std::string>& values);

  std::string& out_;
  int indent_;
};

}  // namespace windtunnel
