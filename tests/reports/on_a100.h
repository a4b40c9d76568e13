// Predictions for a device that is not at hand.
#pragma once

#include "cost_models/device_cost_model.h"
#include "sim/predict.h"

namespace windtunnel {

inline Result<Prediction> OnA100(const Plan& plan) {
  WT_ASSIGN_OR_RETURN(DeviceSpec device, ParseDeviceSpec(*EmbeddedProfile("a100-sxm-80g"), "a100-sxm-80g"));
  return Predict(plan, *MakeDeviceCostModel(device, plan), {});
}

}  // namespace windtunnel
