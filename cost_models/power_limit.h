// How fast a device multiplies under its power limit, by what else it does.
//
// At the highest clock, products draw more than the limit allows, so the clock falls until the mean power
// over some tens of milliseconds is the limit. Memory-bound kernels draw less, and leave the rest to the
// products between them. A product's power grows with about the square of its speed (voltage falls with the
// clock, down to a floor). Let G be the time of products at the speed that they sustain alone, A that of
// attention and M that of everything else. The speed x of products, relative to that alone, is the one at
// which the mean power is the limit P (P_a and P_m: the power in attention and in everything else):
//
//   P x^2 G/x + P_a A + P_m M = P (G/x + A + M),   that is   x^2 = 1 + c x   with   c = ((P - P_a) A + (P - P_m) M) / (P G)
//
//   An H100 of 700 W, with 660 W in attention and 550 W in memory-bound kernels. A layer of 6 ms of products,
//   1 ms of attention, 4 ms of others: c = (40 x 1 + 150 x 4) / (700 x 6) = 0.152, x = 1.079: 5.6 ms.
#pragma once

#include "base/units.h"

namespace windtunnel {

struct PowerSpec {
  double limit_watts = 0;                        // 0: not known, and products have one speed
  double attention_watts = 0, memory_watts = 0;  // while fused attention or memory-bound kernels run
  double most_product_speed = 1;                 // relative to the speed that products sustain alone
};

// How much faster products are than alone. `products`: their time at the speed that they sustain alone.
// REQUIRES: no time is negative.
double ProductSpeed(const PowerSpec& power, Duration products, Duration attention, Duration others);

}  // namespace windtunnel
