// Orthonormal columns (operands: plan/ops.h).
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

Status Run(Scratch& scratch, const Orthonormalize& op, const Operands& operands);

}  // namespace windtunnel::cpu
