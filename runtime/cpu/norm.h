// Layer norm and RMS norm with the residual sum fused in, forward and backward (operands: plan/ops.h).
//
//   layer norm: y = (x - mean) / deviation * gamma + beta     RMS norm: y = x / rms * gamma
//   (epsilon under the root)
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

Status Run(const NormForward& op, const Operands& operands);
Status Run(Scratch& scratch, const NormBackward& op, const Operands& operands);

}  // namespace windtunnel::cpu
