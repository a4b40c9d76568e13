// Losses with their gradients: cross-entropy in place over the logits, on the whole vocabulary or in three
// passes over a tensor-parallel rank's part of it; mean squared error (operands: plan/ops.h). Errors: Failed
// for a target outside the vocabulary; nothing is written then.
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

Status Run(Scratch& scratch, const CrossEntropy& op, const Operands& operands);
Status Run(Scratch& scratch, const VocabParallelMaximum& op, const Operands& operands);
Status Run(Scratch& scratch, const VocabParallelSums& op, const TensorPosition& tensor,
           const Operands& operands);
Status Run(Scratch& scratch, const VocabParallelLoss& op, const TensorPosition& tensor,
           const Operands& operands);
Status Run(const MeanSquaredError& op, const Operands& operands);

}  // namespace windtunnel::cpu
