// Rotary positions in place, rotating halves as Llama does (operands: plan/ops.h): with theta = position *
// base^(-2i / r) for the first r columns of a head,
//   x[i]        ->  x[i] cos(theta) - x[i + r/2] sin(theta)
//   x[i + r/2]  ->  x[i + r/2] cos(theta) + x[i] sin(theta)
// Backward does the same with -theta.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "plan/attention_ops.h"
#include "runtime/cpu/operands.h"

namespace windtunnel::cpu {

// cos and sin of every position and frequency, computed in double precision on first use and kept: seq *
// rotated floats.
class RopeTables {
 public:
  // Per position: rotated / 2 cosines, then rotated / 2 sines.
  const std::vector<float>& Of(int64_t seq, int64_t rotated, double base);

 private:
  std::map<std::tuple<int64_t, int64_t, double>, std::vector<float>> tables_;
};

// Errors: Unsupported for an odd number of rotated columns.
Status Run(RopeTables& tables, const Rope& op, const ContextPosition& context, const Operands& operands);

}  // namespace windtunnel::cpu
