// How a kernel reports errors in its input.
#pragma once

#include "runtime/cuda/kernels/queue.h"
#include "runtime/cuda/kernels/simt.h"

namespace windtunnel::WT_KERNELS {

#if defined(WT_DEVICE)

// Only the first report is kept. `fault` may be null.
WT_DEVICE void Report(Fault* fault, Fault::Kind kind, int32_t value, int64_t position, int64_t bound) {
  if (fault == nullptr || !CompareAndSwap(&fault->kind, Fault::kNone, kind)) return;
  fault->value = value;
  fault->position = position;
  fault->bound = bound;
}

#endif

}  // namespace windtunnel::WT_KERNELS
