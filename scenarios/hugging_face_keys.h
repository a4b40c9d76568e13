// Reads the keys of a Hugging Face config.json, with messages that have their places.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "scenarios/operator_kinds.h"
#include "scenarios/rules.h"
#include "scenarios/scalars.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel::hugging_face {

// The values of one config.json (JSON is YAML). A null counts as missing, as in transformers.
class Config {
 public:
  Config(const std::string& path, const YamlNode& root) : path_(path), root_(root) {}

  // A size, or `fallback` if the key is missing. Without a fallback the key must be there.
  Result<int64_t> Size(std::string_view key, std::optional<int64_t> fallback = std::nullopt,
                       const Bounds& bounds = kSize) const {
    const YamlNode* node = Get(key);
    if (node == nullptr && fallback) return *fallback;
    if (node == nullptr) return Wrong(key, "is missing, expected a whole number");
    Reading<int64_t> value = ReadInteger(*node);
    std::string expected = value ? bounds.Violation(static_cast<double>(*value)) : value.error();
    if (expected.empty()) return *value;
    return Wrong(key, "is {}, expected {}", Found(*node), expected);
  }

  Result<double> Number(std::string_view key, double fallback, const Bounds& bounds) const {
    const YamlNode* node = Get(key);
    return node == nullptr ? fallback : NumberOf(key, *node, bounds);
  }
  // Whichever of two spellings of a key is there; the first if neither is.
  std::string_view Spelling(std::string_view first, std::string_view second) const {
    return Get(first) == nullptr && Get(second) != nullptr ? second : first;
  }

  // A key of rotary positions; null if it is missing. Newer versions of transformers have these in an object
  // of their own.
  const YamlNode* Rotary(std::string_view key) const {
    const YamlNode* node = Get(key);
    const YamlNode* rotary = Get("rope_parameters");
    if (node == nullptr && rotary != nullptr) node = rotary->Find(key);
    return node == nullptr || node->is_null() ? nullptr : node;
  }
  // The base of rotary positions.
  Result<double> RopeTheta(double fallback = 10'000) const {
    const YamlNode* node = Rotary("rope_theta");
    return node == nullptr ? fallback : NumberOf("rope_theta", *node, AtLeast(1));
  }

  // The share of a head's columns that are rotated.
  Result<double> RotaryShare(double fallback) const {
    const YamlNode* node = Rotary("partial_rotary_factor");
    return node == nullptr ? fallback : NumberOf("partial_rotary_factor", *node, MoreThanUpTo(0, 1));
  }

  Result<bool> Flag(std::string_view key, bool fallback) const {
    const YamlNode* node = Get(key);
    if (node == nullptr) return fallback;
    Reading<bool> value = ReadBoolean(*node);
    if (value) return *value;
    return Wrong(key, "is {}, expected {}", Found(*node), value.error());
  }

  // The activation that `choices` map the key's word to; `fallback` if the key is missing.
  struct Choice {
    std::string_view word;
    ActivationKind kind;
  };
  Result<ActivationKind> Activation(std::string_view key, ActivationKind fallback,
                                    std::initializer_list<Choice> choices) const {
    const YamlNode* node = Get(key);
    if (node == nullptr) return fallback;
    for (const Choice& choice : choices) {
      if (node->text == choice.word) return choice.kind;
    }
    return NotModelled(key, "is {}, expected {} or another spelling of it", Found(*node),
                       choices.begin()->word);
  }

  // A size, or nothing if the key is null; `fallback` if it is missing.
  Result<std::optional<int64_t>> SizeOrNull(std::string_view key, std::optional<int64_t> fallback,
                                            const Bounds& bounds = kSize) const {
    const YamlNode* node = root_.Find(key);
    if (node == nullptr) return fallback;
    if (node->is_null()) return std::optional<int64_t>();
    WT_ASSIGN_OR_RETURN(const int64_t value, Size(key, std::nullopt, bounds));
    return std::optional<int64_t>(value);
  }

  // The length of a list of layers, which must be the first layers (0, 1, …); 0 if the key is missing.
  Result<int64_t> Leading(std::string_view key) const {
    const YamlNode* node = Get(key);
    if (node == nullptr) return 0;
    int64_t next = 0;
    for (const YamlNode& item : node->items) {
      const Reading<int64_t> layer = ReadInteger(item);
      if (!layer || *layer != next++)
        return NotModelled(key, "is not a list of the first layers (0, 1, ...), which only are supported");
    }
    return next;
  }

  bool Has(std::string_view key) const { return root_.Find(key) != nullptr; }  // also as null
  // Null if the key is missing or null.
  const YamlNode* Get(std::string_view key) const {
    const YamlNode* node = root_.Find(key);
    return node == nullptr || node->is_null() ? nullptr : node;
  }

  // Errors about a key, "FILE:LINE:COLUMN: KEY …". The place is its value's, or the whole configuration's if
  // it is missing.
  template <typename... Args>
  tl::unexpected<Error> Wrong(std::string_view key, fmt::format_string<Args...> format,
                              Args&&... args) const {
    return InvalidInput("{}: {} {}", PlaceOf(key), key, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  tl::unexpected<Error> NotModelled(std::string_view key, fmt::format_string<Args...> format,
                                    Args&&... args) const {
    return Unsupported("{}: {} {}", PlaceOf(key), key, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string PlaceOf(std::string_view key) const {
    const YamlNode* node = Rotary(key);
    return At(path_, node != nullptr ? node->place : root_.place);
  }
  Result<double> NumberOf(std::string_view key, const YamlNode& node, const Bounds& bounds) const {
    Reading<double> value = ReadNumber(node);
    std::string expected = value ? bounds.Violation(*value) : value.error();
    if (expected.empty()) return *value;
    return InvalidInput("{}: {} is {}, expected {}", At(path_, node.place), key, Found(node), expected);
  }

  const std::string& path_;
  const YamlNode& root_;
};

}  // namespace windtunnel::hugging_face
