// How fast a scenario's products are on a device under a power limit (cost_models/power_limit.h), by what its blocks consist of: the
// device's own kernels in forward and backward of one micro-batch, of as many layers as there are kinds of. Not by all of a step, so
// that whoever puts a step together of parts (sim/composed) has the same costs as whoever has all of it.
//
//   ProductSpeeds speeds;
//   double speed = speeds.Of(scenario, device, framework);  // 1.09: products take 1 / 1.09 of what they take alone
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "cost_models/device_spec.h"
#include "cost_models/framework_kernels.h"
#include "cost_models/framework_profile.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// How the scenario computes, on devices that are equally fast.
ArithmeticContext ArithmeticOf(const Scenario& scenario);

// Remembers what it has found, since a search asks for few blocks in thousands of configurations, from all of its threads. For one device
// and what it says of frameworks.
class ProductSpeeds {
 public:
  // 1 where the device's limit is not known, or the scenario has no blocks.
  double Of(const Scenario& scenario, const DeviceSpec& device, const FrameworkProfile& framework);

 private:
  std::mutex mutex_;
  std::vector<std::pair<Scenario, double>> known_;
};

}  // namespace windtunnel
