// How fast a scenario's matrix products run on a device under a power limit (cost_models/power_limit.h). The
// speed follows from the device's own kernels in forward and backward of one micro-batch, over one layer of
// each kind in the model. The rest of the step does not count, so whoever composes a step from parts
// (sim/composed) gets the same costs as whoever has the whole step.
//
//   ProductSpeeds speeds;
//   double speed = speeds.Of(scenario, device, framework);  // 1.09: products take 1 / 1.09 of their time
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "cost_models/device_spec.h"
#include "cost_models/framework_kernels.h"
#include "cost_models/framework_profile.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// How the scenario computes, on devices that are equally fast (`slowest` and `product_speed` are 1).
ArithmeticContext ArithmeticOf(const Scenario& scenario);

// Caches the speeds it has found, since a search asks for few distinct blocks in thousands of configurations,
// from all of its threads. Serves one device and one framework profile.
class ProductSpeeds {
 public:
  // 1 if the device's power limit is not known, or the scenario has no blocks.
  double Of(const Scenario& scenario, const DeviceSpec& device, const FrameworkProfile& framework);

 private:
  std::mutex mutex_;
  std::vector<std::pair<Scenario, double>> known_;
};

}  // namespace windtunnel
