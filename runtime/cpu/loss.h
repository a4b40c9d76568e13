// Losses with their gradients: cross-entropy in place over the logits, whole or in the three passes over a tensor
// rank's part of them; mean squared error (operands: plan/op.h). Errors: Failed for a target outside the vocabulary; nothing is written then.
#pragma once

#include "base/result.h"
#include "plan/op.h"
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
