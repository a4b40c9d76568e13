// A parameter's initial values (operands: plan/ops.h). Element i is a pure function of (seed, stream, i), so
// any rank can compute any part of a parameter, and every machine computes the same bits (integer arithmetic
// and one rounding).
//
// With r(n) = RandomStream(seed, stream).At(n):
//   uniform: (2 u - 1) * scale, u = (r(i) >> 11) / 2^53.
//   normal:  z * scale, z = (sum of the twelve 16-bit parts of r(3i), r(3i+1), r(3i+2) - 6 * 65535) / 65536:
//            mean 0, variance 1 - 2^-32, tails end at +-6.
#pragma once

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"

namespace windtunnel::cpu {

// With op.part, writes only the elements of the whole parameter that the rank holds.
Status Run(const InitializeParameter& op, const KernelContext& context, const Operands& operands);

}  // namespace windtunnel::cpu
