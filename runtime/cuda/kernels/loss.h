// Losses with their gradients: cross-entropy in place over the logits, on the whole vocabulary or in three
// passes over a tensor-parallel rank's part of it; mean squared error (operands: plan/ops.h). A target outside
// the vocabulary is reported as a fault; its row's gradient is the softmax's.
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

void Run(Queue& queue, const CrossEntropy& op, const Operands& operands);
void Run(Queue& queue, const VocabParallelMaximum& op, const Operands& operands);
void Run(Queue& queue, const VocabParallelSums& op, const KernelContext& context, const Operands& operands);
void Run(Queue& queue, const VocabParallelLoss& op, const KernelContext& context, const Operands& operands);
void Run(Queue& queue, const MeanSquaredError& op, const Operands& operands);
int64_t ScratchBytes(const CrossEntropy& op, const Traits& traits);
int64_t ScratchBytes(const VocabParallelLoss& op, const Traits& traits);
int64_t ScratchBytes(const MeanSquaredError& op, const Traits& traits);

}  // namespace windtunnel::WT_KERNELS
