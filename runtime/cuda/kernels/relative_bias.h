// The biases of relative positions (operands: plan/attention_ops.h; buckets: plan/relative_buckets.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const RelativeBias& op, const Operands& operands);
void Run(Queue& queue, const RelativeBiasBackward& op, const Operands& operands);

}  // namespace windtunnel::WT_KERNELS
