// The layers of a model whose layers differ in what they mix tokens with, as a text in the letters of
// Megatron's --hybrid-layer-pattern: M (Mamba-2), G (a gated delta network) and * (attention), - (an MLP) and
// E (experts). Megatron counts every letter as a layer; here a layer is a mixer (M, G or *) with the MLP or
// the experts right behind it. An MLP behind another one is a layer without a mixer. The pattern repeats
// itself until all layers have one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace windtunnel {

struct PatternLayer {
  char mixer = '\0';   // M, G or *; none
  char behind = '\0';  // - or E; none
};

constexpr bool IsMixer(char letter) { return letter == 'M' || letter == 'G' || letter == '*'; }

constexpr bool BeginsLayer(std::string_view pattern, size_t i) {
  return i == 0 || IsMixer(pattern[i]) || !IsMixer(pattern[i - 1]);
}

// The number of layers in one repetition.
constexpr int64_t LayersInPattern(std::string_view pattern) {
  int64_t layers = 0;
  for (size_t i = 0; i < pattern.size(); ++i) layers += BeginsLayer(pattern, i) ? 1 : 0;
  return layers;
}

// Layer `layer`, from 0. (Of an empty pattern, which checks refuse: nothing.)
constexpr PatternLayer LayerOfPattern(std::string_view pattern, int64_t layer) {
  if (pattern.empty()) return {};
  int64_t left = layer % LayersInPattern(pattern);
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (!BeginsLayer(pattern, i) || left-- > 0) continue;
    if (!IsMixer(pattern[i])) return {'\0', pattern[i]};
    const bool is_alone = i + 1 == pattern.size() || IsMixer(pattern[i + 1]);
    return {pattern[i], is_alone ? '\0' : pattern[i + 1]};
  }
  return {};
}

// The shortest pattern that gives `letters` when it is repeated.
inline std::string ShortestPattern(const std::string& letters) {
  for (size_t n = 1; n < letters.size(); ++n)
    if (letters.size() % n == 0 && letters.compare(n, std::string::npos, letters, 0, letters.size() - n) == 0)
      return letters.substr(0, n);
  return letters;
}

}  // namespace windtunnel
