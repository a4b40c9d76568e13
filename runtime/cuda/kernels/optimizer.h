// The optimizer and gradient clipping over all parameters of a step, many tensors per launch (operands:
// plan/ops.h; the rules: runtime/cpu/optimizer.h). Operands are fp32; for 16-bit models they are the master
// weights.
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const GradientNorm& op, const Operands& operands);
void Run(Queue& queue, const SquareRoot& op, const Operands& operands);
void Run(Queue& queue, const ClipGradients& op, const Operands& operands);
void Run(Queue& queue, const UnscaleGradients& op, const Operands& operands);
void Run(Queue& queue, const UpdateLossScale& op, const Operands& operands);
void Run(Queue& queue, const OptimizerUpdate& op, const KernelContext& context, const Operands& operands);
int64_t ScratchBytes(const GradientNorm& op, const Traits& traits);

}  // namespace windtunnel::WT_KERNELS
