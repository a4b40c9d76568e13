// FusedAttention with cuDNN's functions passed in, so that a test can replace the device.
#pragma once

#include <memory>

#include "runtime/cuda/cudnn_graph.h"
#include "runtime/cuda/fused_attention.h"

namespace windtunnel::cuda {

// `target` outlives the result. `zero` fills device memory with zeros on a stream: cudaMemsetAsync.
using FillWithZeros = cudaError_t (*)(void* memory, size_t bytes, cudaStream_t stream);
std::unique_ptr<FusedAttention> MakeCudnnFusedAttention(CudnnApi api, GraphTarget target, FillWithZeros zero);

}  // namespace windtunnel::cuda
