// Packs weights into 4 bits, and unpacks them (operands: plan/ops.h; the format: runtime/nf4.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const Quantize& op, const Operands& operands);
void Run(Queue& queue, const Dequantize& op, const Operands& operands);

}  // namespace windtunnel::WT_KERNELS
