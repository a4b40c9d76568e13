// Routing tokens to experts and combining the experts' outputs (operands: plan/ops.h).
#pragma once

#include "base/result.h"
#include "plan/expert_ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/scratch.h"

namespace windtunnel::cpu {

// Errors: Unsupported without a capacity, since rows have no fixed place then.
Status Run(Scratch& scratch, const RouteTokens& op, const Operands& operands);
Status Run(const RouteTokensBackward& op, const Operands& operands);
Status Run(const DispatchTokens& op, const Operands& operands);
Status Run(Scratch& scratch, const CombineTokens& op, const Operands& operands);
Status Run(const CombineBackward& op, const Operands& operands);

}  // namespace windtunnel::cpu
