// How a collective and the computation beside it share a core, fitted to two measured slow-downs.
//
// The model (sim/core_sharing.h): a core is shared max-min fairly between computing threads (weight 1, each
// wants the whole core) and communication flows (weight w, each wants at most its demand d). Measured with c
// ranks on a core, all computing and all inside the collective:
//   r  the collective's speed relative to alone        (collective_rate_under_compute)
//   q  a computing thread's speed relative to alone    (compute_rate_under_collective)
//   d  the share of a core that one rank's communication takes alone (core time / time)
//
// A flow's share of the core is s = r d, each computing thread keeps 1/c - s. Neither is satisfied, so their
// shares stand in the ratio of their weights:
//   w = s / (1/c - s)                        one rank a core: w = s / (1 - s)
// A computing thread has 1 - c s of the core time that it has without the collective. Whatever speed it loses
// beyond that, it loses to caches and memory:
//   e = q / (1 - c s)
// If q implies that less core time was taken than r d (threads that spin while idle stop when the core is
// wanted), the demand follows q: s = (1 - q) / c and d = s / r, so that both measured speeds are reproduced.
//
// Worked: c = 1, d = 0.8, r = 0.5, q = 0.48: s = 0.4, w = 0.4 / 0.6 = 0.667, e = 0.48 / 0.6 = 0.8.
#pragma once

namespace windtunnel {

struct MeasuredOverlap {
  double core_share = 0;       // d, in [0, 1]
  double collective_rate = 1;  // r, in (0, 1]
  double compute_rate = 1;     // q, in (0, 1]
  int ranks_per_core = 1;      // c
};

struct OverlapFit {
  double core_share = 0;
  double weight = 1;
  double compute_efficiency = 1;
};

// A collective that computation does not slow down (r >= 0.99) has a large but unknown weight: this one.
inline constexpr double kLargestOverlapWeight = 64;

OverlapFit FitOverlap(const MeasuredOverlap& measured);

}  // namespace windtunnel
