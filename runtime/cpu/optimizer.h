// The optimizer and gradient clipping over all parameters of a step, each in one pass over memory (operands:
// plan/ops.h). The update rules are torch.optim's (SGD with momentum and weight decay, Adam, AdamW) and
// torch.nn.utils.clip_grad_norm_.
//
// `step` counts updates made before: Adam's bias corrections are 1 - beta^(step + 1).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"

namespace windtunnel::cpu {

Status Run(const GradientNorm& op, const Operands& operands);
Status Run(const SquareRoot& op, const Operands& operands);
Status Run(const ClipGradients& op, const Operands& operands);
Status Run(const UnscaleGradients& op, const Operands& operands);
Status Run(const UpdateLossScale& op, const Operands& operands);
Status Run(const OptimizerUpdate& op, int64_t step, double lr_factor, const Operands& operands);

}  // namespace windtunnel::cpu
