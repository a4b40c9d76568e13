// Token and position embeddings, forward and backward (operands: plan/ops.h). An id outside the vocabulary is
// reported as a fault; its row becomes zero and it gets no gradient.
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const EmbeddingForward& op, const KernelContext& context, const Operands& operands);
void Run(Queue& queue, const EmbeddingBackward& op, const KernelContext& context, const Operands& operands);

}  // namespace windtunnel::WT_KERNELS
