// Costs of a plan on a device that is not at hand: the framework's kernels by roofline, collectives by NCCL's
// model (or as measured, if it has nccl-tests' output), host times by framework. All costs are constants.
#pragma once

#include <memory>

#include "cost_models/block_speed.h"
#include "cost_models/cost_model.h"
#include "cost_models/device_spec.h"
#include "cost_models/framework_profile.h"

namespace windtunnel {

// `device` and `framework` must outlive the model. A model with links (cluster.topology, or `cards`) serves
// one thread only. Without `framework`: the known profile of the scenario's framework. `speeds` caches the
// product speeds of blocks, for callers that make thousands of models. `cards`: kModelled gives a scenario
// without cluster.topology links, where nodes' cards are joined by switches that are never busy.
std::unique_ptr<CostModel> MakeDeviceCostModel(const DeviceSpec& device, const Plan& plan,
                                               const FrameworkProfile* framework = nullptr,
                                               ProductSpeeds* speeds = nullptr,
                                               CardSharing cards = CardSharing::kIgnored);

}  // namespace windtunnel
