#include "cost_models/overlap.h"

#include <algorithm>

#include "base/check.h"

namespace windtunnel {
namespace {

constexpr double kUndisturbed = 0.99;
// The smallest share of a core that a measured slow-down is attributed to. Below it, q is 1 within the noise,
// and a demand of zero could not be slowed down at all.
constexpr double kSmallestShare = 0.001;

}  // namespace

OverlapFit FitOverlap(const MeasuredOverlap& measured) {
  WT_CHECK(measured.ranks_per_core >= 1);
  WT_CHECK(measured.collective_rate > 0);
  if (measured.core_share <= 0) {  // own engines: only caches and memory suffer
    return {.core_share = 0, .weight = 1, .compute_efficiency = std::clamp(measured.compute_rate, 0.01, 1.0)};
  }
  const double ranks = measured.ranks_per_core;
  const double taken = std::max((1.0 - measured.compute_rate) / ranks, kSmallestShare);
  // A flow cannot have taken all of its part, since the computing threads made progress.
  const double share = std::min({measured.collective_rate * measured.core_share, taken, 0.99 / ranks});
  const double left = 1.0 / ranks - share;
  return {.core_share = std::min(share / measured.collective_rate, 1.0),
          .weight = measured.collective_rate >= kUndisturbed ? kLargestOverlapWeight
                                                             : std::min(share / left, kLargestOverlapWeight),
          .compute_efficiency = std::clamp(measured.compute_rate / (1.0 - ranks * share), 0.01, 1.0)};
}

}  // namespace windtunnel
