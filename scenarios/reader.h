// Reads a block of a scenario file into the struct that describe.h pairs it with. Each mistake becomes a
// Problem; its member keeps its value, and reading goes on.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/describe.h"
#include "scenarios/scalars.h"
#include "scenarios/suggest.h"
#include "scenarios/words.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {

// What is wrong, and where.
struct Problem {
  Place place;
  std::string message;
  bool is_missing = false;  // the key is missing; `place` is that of its block
};

// Collects problems. They are reported in the order of the file, those of overrides after those of the file.
// Missing keys are reported only if nothing else is wrong, since a misspelt key explains the missing one.
class Problems {
 public:
  void Add(Place place, std::string message) { all_.push_back({place, std::move(message)}); }
  void AddMissing(Place place, std::string message) { all_.push_back({place, std::move(message), true}); }
  bool empty() const { return all_.empty(); }
  // In that order; equal problems only once.
  std::vector<Problem> InOrder() const;

 private:
  std::vector<Problem> all_;
};

class Reader {
 public:
  // `block` is a block, and `path` is its dotted path, empty at the root. Relative paths start at
  // `directory`. `is_of_preset`: what is read into comes from a preset, whose keys the block's override.
  Reader(const YamlNode& block, std::string path, const std::string& directory, Problems& problems,
         bool is_of_preset = false)
      : block_(block),
        path_(std::move(path)),
        directory_(directory),
        problems_(problems),
        is_of_preset_(is_of_preset) {}

  // Reads `spec`, and reports keys that its description lacks.
  template <typename T>
  void Read(T& spec) {
    Describe(*this, spec);
    ReportUnknownKeys();
  }

  template <typename I>
  void Integer(std::string_view key, I& value, const Bounds& bounds, std::string_view) {
    if (const YamlNode* node = Take(key)) ReadInto(*node, PathOf(key), value, bounds);
  }
  void Number(std::string_view key, double& value, const Bounds& bounds, std::string_view);
  void Number(std::string_view key, std::optional<double>& value, const Bounds& bounds, std::string_view);
  void Flag(std::string_view key, bool& value, std::string_view);
  // Sets `number` to 0 if true or false is given. REQUIRES: bounds leave 0 out.
  void FlagOrInteger(std::string_view key, bool& value, int64_t& number, const Bounds& bounds,
                     std::string_view);
  void Flags(std::string_view key, std::vector<bool>& values, std::string_view);
  void Text(std::string_view key, std::string& value, const TextRule& rule, std::string_view);
  void Path(std::string_view key, std::string& value, const TextRule& rule, std::string_view);
  void Paths(std::string_view key, std::vector<std::string>& values, const TextRule& rule, std::string_view);
  void Integers(std::string_view key, std::vector<int64_t>& values, const Bounds& bounds, std::string_view);
  void Wrap(std::string_view key, WrapPolicy& wrap, std::string_view);
  void InputOnly(std::string_view key, std::string_view) { Take(key); }
  void Require(std::string_view key);
  void RequireWithoutPreset(std::string_view key);
  bool Covers(bool) const { return true; }

  template <typename E>
  void Word(std::string_view key, E& value, std::initializer_list<E> allowed, std::string_view) {
    if (const YamlNode* node = Take(key)) ReadWord(*node, PathOf(key), value, std::vector<E>(allowed));
  }
  template <typename E>
  void Word(std::string_view key, E& value, std::string_view) {
    if (const YamlNode* node = Take(key)) ReadWord(*node, PathOf(key), value, std::vector<E>());
  }
  template <typename E>
  void WordOrPath(std::string_view key, E& value, std::string& path, std::string_view suffix,
                  std::string_view) {
    const YamlNode* node = Take(key);
    if (node == nullptr) return;
    if (!node->is_scalar() || !node->text.ends_with(suffix))
      return ReadWord(*node, PathOf(key), value, std::vector<E>(),
                      fmt::format("a path that ends with {}", suffix));
    ReadPath(*node, PathOf(key), path, TextRule{});
  }
  // Sets `number` to 0 if a word is given. REQUIRES: bounds leave 0 out.
  template <typename E>
  void WordOrNumber(std::string_view key, E& value, double& number, const Bounds& bounds, std::string_view) {
    const YamlNode* node = Take(key);
    if (node == nullptr) return;
    if (node->is_plain() && IsNumber(node->text)) return ReadInto(*node, PathOf(key), number, bounds);
    number = 0;
    ReadWord(*node, PathOf(key), value, std::vector<E>(), "a number");
  }
  template <typename E>
  void Words(std::string_view key, std::vector<E>& values, std::string_view) {
    const YamlNode* list = TakeList(key);
    if (list == nullptr) return;
    values.resize(list->items.size());
    for (size_t i = 0; i < values.size(); ++i)
      ReadWord(list->items[i], PathOf(key), values[i], std::vector<E>());
  }

  template <typename T>
  void Block(std::string_view key, T& spec, std::string_view) {
    const YamlNode* node = Take(key);
    if (node != nullptr && ExpectBlock(*node, key, "a block")) ReadBlock(*node, key, spec);
  }
  // Null means that there is no block.
  template <typename T>
  void OptionalBlock(std::string_view key, std::optional<T>& spec, std::string_view) {
    const YamlNode* node = Take(key);
    if (node == nullptr) return;
    if (node->is_null() || !ExpectBlock(*node, key, "a block")) return spec.reset();
    const bool is_of_preset = spec.has_value();
    Reader(*node, PathOf(key), directory_, problems_, is_of_preset).Read(is_of_preset ? *spec : spec.emplace());
  }
  template <typename T>
  void Blocks(std::string_view key, std::vector<T>& specs, std::string_view) {
    const YamlNode* list = TakeList(key);
    if (list == nullptr) return;
    specs.assign(list->items.size(), T{});
    for (size_t i = 0; i < specs.size(); ++i) {
      if (ExpectBlock(list->items[i], key, "a list of blocks")) ReadBlock(list->items[i], key, specs[i]);
    }
  }
  // Null means that nothing is given.
  template <typename T>
  void TextOrBlock(std::string_view key, std::string_view, std::string& text, const TextRule& rule, T& spec,
                   std::string_view) {
    const YamlNode* node = Take(key);
    if (node == nullptr || node->is_null()) return;
    if (node->is_scalar()) return ReadInto(*node, PathOf(key), text, rule);
    if (ExpectBlock(*node, key, rule.Expected() + ", or a block")) ReadBlock(*node, key, spec);
  }

 private:
  // Returns the value of `key`, and counts the key as known.
  const YamlNode* Take(std::string_view key);
  const YamlNode* TakeList(std::string_view key);
  std::string PathOf(std::string_view key) const;
  void Fail(const YamlNode& node, const std::string& path, const std::string& expected);
  bool ExpectBlock(const YamlNode& node, std::string_view key, const std::string& expected);
  void ReportUnknownKeys();

  template <typename T>
  void ReadBlock(const YamlNode& node, std::string_view key, T& spec) {
    Reader(node, PathOf(key), directory_, problems_).Read(spec);
  }
  template <typename I>
  void ReadInto(const YamlNode& node, const std::string& path, I& value, const Bounds& bounds) {
    if (std::optional<int64_t> whole = IntegerWithin(node, path, bounds)) value = static_cast<I>(*whole);
  }
  void ReadInto(const YamlNode& node, const std::string& path, double& value, const Bounds& bounds);
  void ReadInto(const YamlNode& node, const std::string& path, std::string& value, const TextRule& rule);
  void ReadPath(const YamlNode& node, const std::string& path, std::string& value, const TextRule& rule);
  std::optional<int64_t> IntegerWithin(const YamlNode& node, const std::string& path, const Bounds& bounds);

  // `allowed` empty: every word of the enumeration. `or_else`: another accepted form, for error messages.
  template <typename E>
  void ReadWord(const YamlNode& node, const std::string& path, E& value, const std::vector<E>& allowed,
                const std::string& or_else = "") {
    std::vector<std::string> words;
    for (const auto& entry : windtunnel::Words<E>::table) {
      if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), entry.value) == allowed.end())
        continue;
      if (node.is_scalar() && node.text == entry.word) {
        value = entry.value;
        return;
      }
      words.emplace_back(entry.word);
    }
    std::vector<std::string> choices = words;
    if (!or_else.empty()) choices.push_back(or_else);
    FailWords(node, path, words, JoinWithOr(choices));
  }
  // With the one of `words` that was probably meant.
  void FailWords(const YamlNode& node, const std::string& path, const std::vector<std::string>& words,
                 const std::string& expected);

  const YamlNode& block_;
  std::string path_;
  const std::string& directory_;
  Problems& problems_;
  const bool is_of_preset_;
  std::vector<std::string> known_;
};

// `path` as an absolute path. In the file (`place`) it is relative to `directory`; in an override, to the
// current directory, where the user is.
std::string ResolvedPath(const std::string& path, const std::string& directory, const Place& place);

}  // namespace windtunnel
