// The kinds of backward that a schedule has, and in which of them a rank's gradients are written.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace windtunnel::composed {

// As ActionKind's: gradients of inputs and weights, of inputs (and what is computed with them, such as the
// weights of norms), of the weights that the latter leaves.
enum class BackwardKind : uint8_t { kWhole, kInputs, kWeights };
inline constexpr int kBackwardKinds = 3;

// A backward of one of a rank's stages.
struct BackwardPass {
  int16_t chunk = 0;  // which of the rank's stages
  BackwardKind kind = BackwardKind::kWhole;

  auto operator<=>(const BackwardPass&) const = default;
};

// The passes that are the first or the last of their kind in a step, one for each stage of a rank and kind of
// backward that the schedule has there, in order.
struct PassOrder {
  std::vector<BackwardPass> first, last;

  auto operator<=>(const PassOrder&) const = default;
  bool splits() const {
    for (const std::vector<BackwardPass>* passes : {&first, &last})
      for (const BackwardPass& pass : *passes)
        if (pass.kind != BackwardKind::kWhole) return true;
    return false;
  }
};

// Of a rank with `chunks` stages whose backwards are whole: each stage comes before the rank's previous one.
inline PassOrder WholePasses(int chunks) {
  PassOrder order;
  for (int chunk = chunks; chunk-- > 0;) order.first.push_back({static_cast<int16_t>(chunk)});
  order.last = order.first;
  return order;
}

}  // namespace windtunnel::composed
