// Maps an operator to its kernels: all of plan/ops.h except GEMMs, communication, memory and data. Compiled
// for GPUs and, with WT_EMULATED, for blocks of fibers on the host.
#pragma once

#include <span>

#include "base/result.h"
#include "plan/op.h"
#include "runtime/cuda/kernels/queue.h"
#include "runtime/kernel_context.h"

namespace windtunnel::WT_KERNELS {

// Launches the kernels of one operator; operands as plan/ops.h documents. Errors: Unsupported (a kind, type or
// shape without a kernel; nothing is launched then), Failed (a launch was refused; names the kernel). Errors
// in the data that kernels find are reported later, as a Fault.
Status LaunchOn(Queue& queue, const OpKind& kind, std::span<const TensorRef> reads,
                std::span<const TensorRef> writes, const KernelContext& context);

// Bytes of scratch memory that the operator's kernels need.
int64_t ScratchBytesOf(const OpKind& kind, const Traits& traits);

// The error that the cpu device would report for the fault; Ok if there is none.
Status StatusOf(const Fault& fault);

}  // namespace windtunnel::WT_KERNELS
