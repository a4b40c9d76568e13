// Copies that rearrange elements: columns, heads of ranks, blocks; copies of many tensors at once; whole
// tensors to and from the flat layout of shards (operands: plan/ops.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const CopyColumns& op, const Operands& operands);
void Run(Queue& queue, const SplitColumns& op, const Operands& operands);
void Run(Queue& queue, const SwapBlocks& op, const Operands& operands);
void Run(Queue& queue, const CopyTensors& op, const Operands& operands);
void Run(Queue& queue, const PackShards& op, const Operands& operands);
// The padding is not read.
void Run(Queue& queue, const UnpackShards& op, const Operands& operands);

}  // namespace windtunnel::WT_KERNELS
