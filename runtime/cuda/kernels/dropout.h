// Dropout as an operator of its own (operands: plan/op.h). Attention drops within its kernels.
#pragma once

#include "plan/op.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const Dropout& op, const KernelContext& context, const Operands& operands);

}  // namespace windtunnel::WT_KERNELS
