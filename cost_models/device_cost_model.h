// Costs of a plan on a device that is not at hand: the framework's kernels by roofline, collectives by NCCL's model (or measured, where
// the device has nccl-tests' output for them), host times by framework. Every cost is a constant.
#pragma once

#include <memory>

#include "cost_models/block_speed.h"
#include "cost_models/cost_model.h"
#include "cost_models/device_spec.h"
#include "cost_models/framework_profile.h"

namespace windtunnel {

// `device` and `framework` must outlive the model, which with links (cluster.topology, or `cards`) serves one thread. Without `framework`:
// what is known of the scenario's. `speeds` remembers what products of one block after another come to, for who makes thousands of models.
// `cards`: kModelled for nodes whose cards are linked by switches that are never busy, where there is no cluster.topology.
std::unique_ptr<CostModel> MakeDeviceCostModel(const DeviceSpec& device, const Plan& plan,
                                               const FrameworkProfile* framework = nullptr,
                                               ProductSpeeds* speeds = nullptr,
                                               CardSharing cards = CardSharing::kIgnored);

}  // namespace windtunnel
