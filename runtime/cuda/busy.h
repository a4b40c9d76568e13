// Kernels that keep a device busy, for measurements.
#pragma once

#include <cstdint>

#include "runtime/cuda/stream.h"

namespace windtunnel::cuda {

// Nothing at all: what a launch itself costs.
cudaError_t LaunchNothing(cudaStream_t stream);
// Spins on one multiprocessor for `nanoseconds`, so that the host can issue work ahead of the device.
cudaError_t LaunchSpin(cudaStream_t stream, int64_t nanoseconds);

}  // namespace windtunnel::cuda
