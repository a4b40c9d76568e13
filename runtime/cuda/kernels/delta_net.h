// Gated delta networks (operands: plan/delta_net_ops.h), token by token in fp32.
//
// The convolution (causal_convolution.h), the norms of queries and keys, the decays and corrections, and the
// norm with its gate are kernels of their own around the scans (delta_net_scan.h). Blocks write partial sums
// of the parameters' gradients, which kernels/partials.h adds up.
#pragma once

#include "plan/ops.h"
#include "runtime/cuda/kernels/convolution_limit.h"
#include "runtime/cuda/kernels/operands.h"

namespace windtunnel::WT_KERNELS {

// The widest head of keys that the kernels have room for.
inline constexpr int64_t kMostKeyDim = 256;

void Run(Queue& queue, const DeltaNetForward& op, const Operands& operands);
void Run(Queue& queue, const DeltaNetBackward& op, const Operands& operands);
int64_t ScratchBytes(const DeltaNetBackward& op, const Traits& traits);

}  // namespace windtunnel::WT_KERNELS
