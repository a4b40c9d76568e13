#include "reports/operator_groups.h"

#include <array>
#include <utility>

namespace windtunnel {
namespace {

// Vega's "tableau10" scheme and tints of it: distinguishable side by side, also in grey.
constexpr std::array<OperatorGroup, 13> kGroups = {{{"gemm", "#4c78a8"},
                                                    {"attention", "#f58518"},
                                                    {"state_space", "#b79a20"},
                                                    {"norm", "#72b7b2"},
                                                    {"activation", "#54a24b"},
                                                    {"embedding", "#eeca3b"},
                                                    {"loss", "#b279a2"},
                                                    {"optimizer", "#9d755d"},
                                                    {"copy", "#bab0ac"},
                                                    {"data", "#d6a5c9"},
                                                    {"collective", "#e45756"},
                                                    {"barrier", "#ffbfb5"},
                                                    {"other", "#d8d8d8"}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kServes = {
    {{"bias_gradient", "gemm"},
     {"rope", "attention"},
     {"delta_net", "state_space"},
     {"orthonormalize", "optimizer"},
     {"scale", "copy"},
     {"fill", "copy"},
     {"sum_parts", "copy"},
     {"gradient_norm", "optimizer"},
     {"unscale", "optimizer"},
     {"loss_scale", "optimizer"},
     {"clip", "optimizer"}}};

const OperatorGroup& Find(std::string_view name) {
  for (const OperatorGroup& group : kGroups)
    if (group.name == name) return group;
  return kGroups.back();
}

}  // namespace

std::span<const OperatorGroup> OperatorGroups() { return kGroups; }

const OperatorGroup& OperatorGroupOf(const OpKind& kind) {
  const std::string_view name = OperatorName(kind);
  if (name == "barrier") return Find(name);
  if (IsCommunication(kind)) return Find("collective");
  for (const auto& [small, large] : kServes)
    if (small == name) return Find(large);
  return Find(name);
}

}  // namespace windtunnel
