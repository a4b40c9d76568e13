// How fast a device under its power limit multiplies, by what else it does.
//
// Products draw more than the limit allows at the highest clock, so the clock falls until the mean over some tens of milliseconds is the
// limit. What memory bounds draws less, and leaves the rest to the products between. A product's power grows with about the square of its
// speed (voltage falls with the clock, down to a floor), so with the times G of products at the speed that they sustain alone, A of attention
// and M of everything else, the speed x beyond that is where the mean power is the limit P:
//
//   P x^2 G/x + P_a A + P_m M = P (G/x + A + M),   that is   x^2 = 1 + c x   with   c = ((P - P_a) A + (P - P_m) M) / (P G)
//
//   an H100 of 700 W; 660 W in attention, 550 W in what memory bounds; a layer of 6 ms of products, 1 ms of attention, 4 ms of others:
//   c = (40 x 1 + 150 x 4) / (700 x 6) = 0.152, x = 1.079: 5.6 ms.
#pragma once

#include "base/units.h"

namespace windtunnel {

struct PowerSpec {
  double limit_watts = 0;                        // 0: not known, and products have one speed
  double attention_watts = 0, memory_watts = 0;  // while fused attention runs, and what memory bounds
  double most_product_speed = 1;                 // over the speed that products sustain alone
};

// How much faster products are than alone. `products`: their time at the speed that they sustain alone. REQUIRES: no time is negative.
double ProductSpeed(const PowerSpec& power, Duration products, Duration attention, Duration others);

}  // namespace windtunnel
