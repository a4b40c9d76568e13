// RMS norm of each head of queries and of keys in packed projections (operands: plan/ops.h): y = x / rms *
// gamma over head_dim (epsilon under the root), with one gamma for all heads of queries and one for all of
// keys.
#pragma once

#include "base/result.h"
#include "plan/attention_ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

Status Run(const HeadNormForward& op, const Operands& operands);
Status Run(Scratch& scratch, const HeadNormBackward& op, const Operands& operands);

}  // namespace windtunnel::cpu
