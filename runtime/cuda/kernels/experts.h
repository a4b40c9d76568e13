// Routing tokens to experts and combining the experts' outputs (operands: plan/ops.h).
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

// The most groups that a token's experts may be limited to some of: one bit each.
inline constexpr int64_t kMostExpertGroups = 64;

// REQUIRES: a capacity (without one, rows have no fixed place), and at most kMostExpertGroups groups.
void Run(Queue& queue, const RouteTokens& op, const Operands& operands);
int64_t ScratchBytes(const RouteTokens& op, const Traits& traits);
void Run(Queue& queue, const RouteTokensBackward& op, const Operands& operands);
void Run(Queue& queue, const DispatchTokens& op, const Operands& operands);
void Run(Queue& queue, const CombineTokens& op, const Operands& operands);
void Run(Queue& queue, const CombineBackward& op, const Operands& operands);

}  // namespace windtunnel::WT_KERNELS
