// Devices as their datasheets describe them.
#pragma once

#include "cost_models/device_spec.h"

namespace windtunnel {

inline const DeviceSpec& A100() {
  static const DeviceSpec device = ParseDeviceSpec(*EmbeddedProfile("a100-sxm-80g"), "a100").value();
  return device;
}
inline const DeviceSpec& H100() {
  static const DeviceSpec device = ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "h100").value();
  return device;
}

}  // namespace windtunnel
