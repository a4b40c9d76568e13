// What device code and those who launch it share. For .cu files too, so without {fmt}: launches return cudaError_t, of which
// runtime/cuda/status.h makes a Status.
//
// Files that include this one are compiled only where a CUDA toolkit is found (third_party/cuda/defs.bzl).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace windtunnel::cuda {

// The device that kernels run on.
struct DeviceTraits {
  int ordinal = 0;
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 1;
  size_t shared_bytes_per_block = 0;  // the most that a kernel may opt in to
};

// Where an operator is launched. Kernels of one stream run one after the other, so they share the scratch memory, whose contents
// do not outlive an operator.
struct LaunchTarget {
  cudaStream_t stream = nullptr;
  DeviceTraits traits = {};
  void* scratch = nullptr;  // of the device, aligned to 256 B
  size_t scratch_bytes = 0;
};

}  // namespace windtunnel::cuda
