// What operators take with a framework's kernels on an A100, beside parameters in bf16.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "cost_models/framework_kernels.h"
#include "tests/cost_models/device_specs.h"

namespace windtunnel {

inline constexpr Duration kLaunch = Microseconds(3);

inline const FrameworkProfile& Known(std::string_view name) { return *EmbeddedFramework(name); }

inline double DeviceMicroseconds(const OpKind& kind, std::string_view framework) {
  return DeviceTime(kind, Known(framework), A100(), {.parameters = DType::kBFloat16}).value() /
         Microseconds(1);
}

inline double HostMicroseconds(const OpKind& kind, std::string_view framework) {
  return HostTime(kind, Known(framework), {kLaunch}, {.parameters = DType::kBFloat16}) / Microseconds(1);
}

}  // namespace windtunnel
