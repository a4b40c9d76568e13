#include "cost_models/device_spread.h"

#include "base/check.h"
#include "base/normal.h"

namespace windtunnel {

double SlowestOf(int64_t devices, double spread) {
  WT_CHECK(devices >= 1 && spread >= 0);
  const double n = static_cast<double>(devices);
  return 1 + spread * NormalQuantile((n - 0.375) / (n + 0.25));
}

}  // namespace windtunnel
