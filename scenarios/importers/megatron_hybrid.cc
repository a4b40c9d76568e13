#include "scenarios/importers/megatron_hybrid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace windtunnel {
namespace {

constexpr int64_t kMostLayers = 1000;

// Python's round(): halves to the even number.
int64_t Rounded(double share, int64_t layers) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(layers) * share));
}

// Replaces Ms: one after so many of them as `between` says, on average.
void Intersperse(char letter, double between, std::string& letters) {
  double left = between;
  for (char& old : letters) {
    if (old != 'M') continue;
    if (left < 0.5) {
      old = letter;
      left += between;
    } else {
      left -= 1;
    }
  }
}

// How Megatron distributes `layers` layers, of which the shares given are attention and MLPs
// (megatron/core/ssm/mamba_hybrid_layer_allocation.py, _allocate_auto).
std::string DistributedLayers(int64_t layers, double attention, double mlp) {
  std::string letters(static_cast<size_t>(layers), 'M');
  const int64_t with_attention = Rounded(attention, layers), mlps = Rounded(mlp, layers);
  const int64_t others = layers - with_attention;
  Intersperse('*', static_cast<double>(others) / static_cast<double>(with_attention + 1), letters);
  if (mlps > 0) Intersperse('-', static_cast<double>(others - mlps) / static_cast<double>(mlps), letters);
  return letters;
}

// The text between the marks.
std::vector<std::string> Divided(const std::string& text, char mark) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == mark) parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

std::string Unquoted(std::string text) {
  const bool is_quoted = text.size() > 1 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0];
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

HybridLayers OfPattern(const char* flag, Settings& flags) {
  HybridLayers layers{.letters = flags.Text(flag).value_or(""), .remark = flags.Shown(flag)};
  const std::vector<std::string> parts = Divided(layers.letters, '/');
  layers.depths = std::ssize(parts) - 1;
  if (layers.depths > 0) {
    layers.letters = parts[0];
    layers.modules = parts[1];
    if (layers.modules.empty()) flags.Refuse(flag, "letters behind each /");
    if (std::any_of(parts.begin() + 2, parts.end(), [&](const auto& part) { return part != parts[1]; }))
      flags.Refuse(flag, "the same letters behind each /");
  }
  if (layers.letters.find('|') != std::string::npos) layers.stages = Divided(layers.letters, '|');
  std::erase(layers.letters, '|');
  if (!layers.letters.empty() && !layers.Has('M') && !layers.Has('G')) {
    flags.Refuse(flag, "a pattern with M or G, since other programs train models without Mamba-2");
    layers.letters.clear();
  }
  const int64_t all = std::ssize(layers.letters);
  if (all > 0 && flags.Integer("num_layers").value_or(all) != all)
    flags.Refuse("num_layers", fmt::format("as many as {} has letters ({})", layers.remark, all));
  return layers;
}

HybridLayers OfRatios(double attention, double mlp, Settings& flags) {
  const int64_t layers = flags.Integer("num_layers").value_or(0);
  HybridLayers all{.letters = {}, .remark = "as Megatron distributes"};
  for (const char* ratio : {"hybrid_attention_ratio", "hybrid_mlp_ratio"})
    if (flags.Has(ratio)) all.remark += " " + flags.Shown(ratio);
  if (attention < 0 || mlp < 0 || attention + mlp > 1 || attention == 1)
    flags.Refuse(attention < 0 || attention > 1 ? "hybrid_attention_ratio" : "hybrid_mlp_ratio",
                 "shares of attention and MLPs from 0 to 1 together");
  else if (layers < 1 || layers > kMostLayers)
    flags.Refuse("num_layers", fmt::format("from 1 to {}", kMostLayers));
  else all.letters = DistributedLayers(layers, attention, mlp);
  return all;
}

}  // namespace

std::optional<HybridLayers> ReadHybridLayers(const std::string& program, Settings& flags,
                                             const Draft& draft) {
  const double attention = flags.Number("hybrid_attention_ratio").value_or(0);
  const double mlp = flags.Number("hybrid_mlp_ratio").value_or(0);
  const bool is_flagged = flags.Flag("is_hybrid_model");
  for (const char* key : {"model.mamba.pattern", "model.delta_net.pattern"})
    if (const std::string* set = draft.Find(key))
      return HybridLayers{.letters = Unquoted(*set), .remark = "--set"};
  for (const char* flag : {"hybrid_layer_pattern", "hybrid_override_pattern"})
    if (flags.Has(flag)) return OfPattern(flag, flags);
  if (attention != 0 || mlp != 0) return OfRatios(attention, mlp, flags);
  const auto is_of = [&](const char* word) { return program.find(word) != std::string::npos; };
  if (!is_flagged && !is_of("mamba") && !is_of("pretrain_hybrid")) return std::nullopt;
  return HybridLayers{.letters = "M", .is_pure = true, .remark = "no --hybrid-override-pattern"};
}

}  // namespace windtunnel
