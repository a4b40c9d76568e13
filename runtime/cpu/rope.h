// Rotary positions in place, rotating halves as Llama does (operands: plan/ops.h): with theta = position *
// base^(-2i / head_dim),
//   x[i]          ->  x[i] cos(theta) - x[i + head_dim/2] sin(theta)
//   x[i + head_dim/2] ->  x[i + head_dim/2] cos(theta) + x[i] sin(theta)
// Backward does the same with -theta.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "plan/op.h"
#include "runtime/cpu/operands.h"

namespace windtunnel::cpu {

// cos and sin of every position and frequency, computed in double precision on first use and kept: seq *
// head_dim floats.
class RopeTables {
 public:
  // Per position: head_dim / 2 cosines, then head_dim / 2 sines.
  const std::vector<float>& Of(int64_t seq, int64_t head_dim, double base);

 private:
  std::map<std::tuple<int64_t, int64_t, double>, std::vector<float>> tables_;
};

// Errors: Unsupported for an odd head_dim.
Status Run(RopeTables& tables, const Rope& op, const ContextPosition& context, const Operands& operands);

}  // namespace windtunnel::cpu
