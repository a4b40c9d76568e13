// Copies, scale, fill, adding a bias to rows, its gradient (the sum over rows), and sums of parts (operands:
// plan/ops.h).
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

Status Run(Scratch& scratch, const ColumnSum& op, const Operands& operands);
Status Run(const SumParts& op, const Operands& operands);
Status Run(const AddBias& op, const Operands& operands);
Status Run(const CopyTensors& op, const Operands& operands);
Status Run(const Copy& op, const Operands& operands);
Status Run(const Scale& op, const Operands& operands);
Status Run(const Fill& op, const Operands& operands);

}  // namespace windtunnel::cpu
