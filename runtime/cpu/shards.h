// Copies whole tensors to and from the flat layout of shards in which an FSDP unit is gathered and scattered
// (operands: plan/ops.h).
//
// Example: two tensors of 5 and 2 elements on 2 ranks, shards of 3 and 1: a0 a1 a2 b0 | a3 a4 0 b1.
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"

namespace windtunnel::cpu {

Status Run(const PackShards& op, const Operands& operands);
// The padding is not read.
Status Run(const UnpackShards& op, const Operands& operands);

}  // namespace windtunnel::cpu
