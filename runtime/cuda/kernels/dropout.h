// Dropout as an operator of its own (operands: plan/ops.h). Attention drops within its kernels.
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const Dropout& op, const KernelContext& context, const Operands& operands);

}  // namespace windtunnel::WT_KERNELS
