// Copies between types, scaling, filling, adding a bias to rows, its gradient (the sum over rows), and sums
// of parts (operands: plan/ops.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const Copy& op, const Operands& operands);
void Run(Queue& queue, const Scale& op, const Operands& operands);
void Run(Queue& queue, const Fill& op, const Operands& operands);
void Run(Queue& queue, const SumParts& op, const Operands& operands);
void Run(Queue& queue, const AddBias& op, const Operands& operands);
void Run(Queue& queue, const ColumnSum& op, const Operands& operands);

int64_t ScratchBytes(const ColumnSum& op, const Traits& traits);

}  // namespace windtunnel::WT_KERNELS
