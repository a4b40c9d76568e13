// Activations, forward and backward (functions: scenarios/scenario.h; operands: plan/ops.h).
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"

namespace windtunnel::cpu {

Status Run(const ActivationForward& op, const Operands& operands);
Status Run(const ActivationBackward& op, const Operands& operands);
Status Run(const GateForward& op, const Operands& operands);
Status Run(const GateBackward& op, const Operands& operands);

}  // namespace windtunnel::cpu
