// Activations, forward and backward (functions: scenarios/scenario.h; operands: plan/ops.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const ActivationForward& op, const Operands& operands);
void Run(Queue& queue, const ActivationBackward& op, const Operands& operands);
void Run(Queue& queue, const GateForward& op, const Operands& operands);
void Run(Queue& queue, const GateBackward& op, const Operands& operands);

}  // namespace windtunnel::WT_KERNELS
