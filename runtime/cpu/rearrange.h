// Copies that put elements into another order: columns, heads of ranks, blocks (operands: plan/ops.h).
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"

namespace windtunnel::cpu {

Status Run(const CopyColumns& op, const Operands& operands);
Status Run(const SplitColumns& op, const Operands& operands);
Status Run(const SwapBlocks& op, const Operands& operands);

}  // namespace windtunnel::cpu
