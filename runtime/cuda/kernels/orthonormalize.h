// Orthonormal columns, by one block of threads (operands: plan/ops.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const Orthonormalize& op, const Operands& operands);
int64_t ScratchBytes(const Orthonormalize& op, const Traits& traits);

}  // namespace windtunnel::WT_KERNELS
