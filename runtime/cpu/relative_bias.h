// The biases of relative positions (operands: plan/attention_ops.h; buckets: plan/relative_buckets.h).
#pragma once

#include "base/result.h"
#include "plan/attention_ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

Status Run(Scratch& scratch, const RelativeBias& op, const Operands& operands);
Status Run(Scratch& scratch, const RelativeBiasBackward& op, const Operands& operands);

}  // namespace windtunnel::cpu
