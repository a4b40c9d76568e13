// How the checks of scenarios report problems: each at the place of a key that the file or an override gives.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "scenarios/reader.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {

// Reports a problem at the value of a key that is given, preferably by an override, else by the file.
class Checker {
 public:
  Checker(const YamlNode& root, Problems& problems) : root_(root), problems_(problems) {}

  using Paths = std::initializer_list<std::string_view>;

  bool Gives(std::string_view path) const { return root_.FindPath(path) != nullptr; }

  // Unless `holds`, reports a problem at the first of `paths` that is given; an override comes before the
  // file.
  template <typename... Args>
  void Expect(bool holds, Paths paths, fmt::format_string<Args...> message, Args&&... args) {
    if (!holds) problems_.Add(PlaceOf(paths), fmt::format(message, std::forward<Args>(args)...));
  }

 private:
  Place PlaceOf(Paths paths) const {
    const YamlNode* best = nullptr;
    for (std::string_view path : paths) {
      const YamlNode* node = root_.FindPath(path);
      if (node == nullptr) continue;
      bool overrides_best = best != nullptr && best->place.source == 0 && node->place.source > 0;
      if (best == nullptr || overrides_best) best = node;
    }
    return best == nullptr ? Enclosing(*paths.begin()) : best->place;
  }

  // The innermost block on the way to `path`: "model" of "model.layers".
  Place Enclosing(std::string_view path) const {
    for (size_t dot = path.rfind('.'); dot != std::string::npos; dot = path.rfind('.')) {
      path = path.substr(0, dot);
      if (const YamlNode* node = root_.FindPath(path)) return node->place;
    }
    return root_.place;
  }

  const YamlNode& root_;
  Problems& problems_;
};

}  // namespace windtunnel
