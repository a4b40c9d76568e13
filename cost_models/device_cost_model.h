// Costs of a plan on a device that is not at hand: kernels by roofline, collectives by NCCL's model (or measured, where
// the device has nccl-tests' output for them), host times by framework. Every cost is a constant.
#pragma once

#include <memory>

#include "cost_models/cost_model.h"
#include "cost_models/device_spec.h"

namespace windtunnel {

// `device` must outlive the model, which with cluster.topology serves one thread.
std::unique_ptr<CostModel> MakeDeviceCostModel(const DeviceSpec& device, const Plan& plan);

}  // namespace windtunnel
