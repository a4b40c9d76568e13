// CUDA's errors as Status. Not for .cu files (third_party/cuda/defs.bzl says why).
#pragma once

#include <cuda_runtime_api.h>

#include "base/result.h"

namespace windtunnel::cuda {

// Ok, or Failed: "cudaMalloc: out of memory (2)".
inline Status Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return Ok();
  return Failed("{}: {} ({})", call, cudaGetErrorString(error), static_cast<int>(error));
}

}  // namespace windtunnel::cuda
