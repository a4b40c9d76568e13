#include "cost_models/power_limit.h"

#include <algorithm>

#include "base/check.h"

namespace windtunnel {

double ProductSpeed(const PowerSpec& power, Duration products, Duration attention, Duration others) {
  WT_CHECK(products >= Duration() && attention >= Duration() && others >= Duration());
  if (power.limit_watts == 0 || products == Duration()) return 1;
  const double left = (power.limit_watts - power.attention_watts) * (attention / products) +
                      (power.limit_watts - power.memory_watts) * (others / products);
  const double c = left / power.limit_watts;
  // Newton's method from above the root of a function that is convex there: every step comes closer.
  constexpr int kSteps = 60;
  double x = 1 + c;
  for (int i = 0; i < kSteps; ++i) {
    const double next = x - (x * x * x - c * x - 1) / (3 * x * x - c);
    if (!(next < x)) break;
    x = next;
  }
  return std::min(x, power.most_product_speed);
}

}  // namespace windtunnel
