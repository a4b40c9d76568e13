// One core, shared max-min fairly among the threads that want it.
//
// Each claim i has a weight w_i and a demand d_i (a share of the core that it can use at most). The shares
// x_i solve
//
//   x_i = min(d_i, w_i L),   with the common level L as large as   sum_i x_i <= 1   allows,
//
// by progressive filling: L rises from 0; a claim that reaches its demand stops; the others go on until the
// core is full.
//
//   A computing thread (weight 1, demand 1) alone:                               x = 1
//   Two computing threads (the operating system's time slices):                  x = 1/2 each
//   A computing thread beside a flow of weight 1, demand 0.2:                    flow 0.2, thread 0.8
//   A computing thread beside a flow of weight 1/3, demand 0.8: L + L/3 = 1, so  thread 0.75, flow 0.25
#pragma once

#include <span>

namespace windtunnel {

struct CoreClaim {
  double weight = 1;
  double demand = 1;
  double share = 0;  // the result, in [0, demand]
};

// Fills in the shares. REQUIRES: positive weights, demands in [0, 1].
void ShareCore(std::span<CoreClaim> claims);

}  // namespace windtunnel
