// Kernels that keep a device busy, for measurements. For .cu files too, so without {fmt}: launches return cudaError_t, of which
// runtime/cuda/status.h makes a Status. Compiled only where a CUDA toolkit is found (third_party/cuda/defs.bzl).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace windtunnel::cuda {

// Nothing at all: what a launch itself costs.
cudaError_t LaunchNothing(cudaStream_t stream);
// Spins on one multiprocessor for `nanoseconds`, so that the host can issue work ahead of the device.
cudaError_t LaunchSpin(cudaStream_t stream, int64_t nanoseconds);

}  // namespace windtunnel::cuda
