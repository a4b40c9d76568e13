// A parameter's initial values: the same bits as runtime/cpu/initialize.h (operands: plan/ops.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const InitializeParameter& op, const KernelContext& context, const Operands& operands);

}  // namespace windtunnel::WT_KERNELS
