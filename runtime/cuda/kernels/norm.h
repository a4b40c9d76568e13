// Layer norm and RMS norm with the residual sum fused in, forward and backward (operands: plan/op.h).
//
//   layer norm: y = (x - mean) / deviation * gamma + beta     RMS norm: y = x / rms * gamma     (epsilon under the root)
//
// A block has a row at a time: in shared memory in fp32 going forward; going backward it keeps its rows' share of the parameters'
// gradients there instead, which a second kernel adds up (kernels/partials.h).
#pragma once

#include "plan/op.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const NormForward& op, const Operands& operands);
void Run(Queue& queue, const NormBackward& op, const Operands& operands);
int64_t ScratchBytes(const NormBackward& op, const Traits& traits);

// Shared memory that they need; a device may have less.
int64_t SharedBytes(const NormForward& op);
int64_t SharedBytes(const NormBackward& op);

}  // namespace windtunnel::WT_KERNELS
