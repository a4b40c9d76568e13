// Routing tokens to experts and adding up what comes back (operands: plan/op.h).
#pragma once

#include "plan/op.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

// Groups that tokens' experts are limited to; a bit each.
inline constexpr int64_t kMostExpertGroups = 64;

// REQUIRES: a capacity, without which rows have no place of their own; at most kMostExpertGroups groups.
void Run(Queue& queue, const RouteTokens& op, const Operands& operands);
int64_t ScratchBytes(const RouteTokens& op, const Traits& traits);
void Run(Queue& queue, const RouteTokensBackward& op, const Operands& operands);
void Run(Queue& queue, const DispatchTokens& op, const Operands& operands);
void Run(Queue& queue, const CombineTokens& op, const Operands& operands);
void Run(Queue& queue, const CombineBackward& op, const Operands& operands);

}  // namespace windtunnel::WT_KERNELS
