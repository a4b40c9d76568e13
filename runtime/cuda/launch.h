// The operators of plan/op.h as kernels, all but matrix products (runtime/cuda/gemm.h).
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "plan/op.h"
#include "runtime/cuda/stream.h"
#include "runtime/device.h"

namespace windtunnel::cuda {

// Launches the kernels of one operator on target.stream and returns without waiting for them. `reads` and `writes` as plan/op.h
// documents. Errors: Unsupported (a kind or a type without a kernel), Failed (a launch that CUDA refused).
Status LaunchKernels(const OpKind& kind, std::span<const TensorRef> reads, std::span<const TensorRef> writes,
                     const KernelContext& context, const LaunchTarget& target);

// Bytes of LaunchTarget::scratch that the operator needs.
size_t ScratchBytes(const OpKind& kind, const DeviceTraits& traits);

}  // namespace windtunnel::cuda
