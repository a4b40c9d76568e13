// Kernels that keep a device busy, for measurements. Also included by .cu files, hence without {fmt}:
// launches return cudaError_t, which runtime/cuda/status.h converts to a Status. Compiled only where a CUDA
// toolkit is found (third_party/cuda/defs.bzl).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace windtunnel::cuda {

// Launches an empty kernel, to measure the cost of a launch itself.
cudaError_t LaunchNothing(cudaStream_t stream);
// Spins on one multiprocessor for `nanoseconds`, so that the host can issue work ahead of the device.
cudaError_t LaunchSpin(cudaStream_t stream, int64_t nanoseconds);

}  // namespace windtunnel::cuda
