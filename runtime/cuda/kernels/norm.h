// Layer norm and RMS norm with the residual sum fused in, forward and backward (operands: plan/ops.h).
//
//   layer norm: y = (x - mean) / deviation * gamma + beta     RMS norm: y = x / rms * gamma     (epsilon under the root)
//
// A block processes one or several rows at a time, in registers or, for long or unaligned rows, one in shared
// memory. In backward it keeps its rows' share of the parameters' gradients, and a second kernel sums those
// of all blocks (kernels/partials.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const NormForward& op, const Operands& operands);
void Run(Queue& queue, const NormBackward& op, const Operands& operands);
int64_t ScratchBytes(const NormBackward& op, const Traits& traits);

// The most shared memory that they need; a device may have less.
int64_t SharedBytes(const NormForward& op);
int64_t SharedBytes(const NormBackward& op);

}  // namespace windtunnel::WT_KERNELS
