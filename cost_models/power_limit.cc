#include "cost_models/power_limit.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace windtunnel {

double ProductSpeed(const PowerSpec& power, Duration products, Duration attention, Duration others) {
  WT_CHECK(products >= Duration() && attention >= Duration() && others >= Duration());
  if (power.limit_watts == 0 || products == Duration()) return 1;
  const double left = (power.limit_watts - power.attention_watts) * (attention / products) +
                      (power.limit_watts - power.memory_watts) * (others / products);
  const double c = left / power.limit_watts;
  return std::min((c + std::sqrt(c * c + 4)) / 2, power.most_product_speed);
}

}  // namespace windtunnel
