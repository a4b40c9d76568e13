// From an operator to the kernels that it is made of: all of plan/op.h but matrix products, communication, memory and data. Compiled for
// GPUs and, with WT_EMULATED, for blocks of fibers on the host.
#pragma once

#include <span>

#include "base/result.h"
#include "plan/op.h"
#include "runtime/cuda/kernels/queue.h"
#include "runtime/kernel_context.h"

namespace windtunnel::WT_KERNELS {

// Launches the kernels of one operator; operands as plan/op.h documents. Errors: Unsupported (a kind, a type or a shape without a
// kernel; nothing is launched then), Failed (a launch that was refused, with the kernel's name). What kernels find wrong in the data
// comes later, as a Fault.
Status LaunchOn(Queue& queue, const OpKind& kind, std::span<const TensorRef> reads,
                std::span<const TensorRef> writes, const KernelContext& context);

// The scratch that the operator's kernels need.
int64_t ScratchBytesOf(const OpKind& kind, const Traits& traits);

// What the fault says, as the cpu device would; Ok for none.
Status StatusOf(const Fault& fault);

}  // namespace windtunnel::WT_KERNELS
