#include "runtime/cpu/muon.h"

#include <algorithm>
#include <cmath>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/muon_constants.h"

namespace windtunnel::cpu {
namespace {

template <typename M>
WT_CPU_KERNEL void Direct(int64_t n, MuonConstants c, const float* gradient, M* momentum, BFloat16* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float m = c.momentum * ToFloat(momentum[i]) + c.one_minus_momentum * gradient[i];
    momentum[i] = FromFloat<M>(m);
    x[i] = FromFloat<BFloat16>(c.one_minus_momentum * gradient[i] + c.momentum * m);
  }
}

WT_CPU_KERNEL double SumOfSquares(int64_t n, const BFloat16* x) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const double value = ToFloat(x[i]);
    sum += value * value;
  }
  return sum;
}

WT_CPU_KERNEL void Divide(int64_t n, float divisor, BFloat16* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = FromFloat<BFloat16>(ToFloat(x[i]) / divisor);
}

WT_CPU_KERNEL void Update(int64_t n, float kept, float rate, const BFloat16* x, float* parameter) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) parameter[i] = kept * parameter[i] - rate * ToFloat(x[i]);
}

}  // namespace

Status Run(const MuonDirection& op, const Operands& operands) {
  const int64_t n = op.elements;
  BFloat16* const x = operands.Out<BFloat16>(1, n);
  if (op.guarded && *operands.In(1, 1) != 0.0f) {
    std::fill_n(x, n, BFloat16());
    return Ok();
  }
  const MuonConstants constants = MuonConstantsOf(op.spec);
  const float* const gradient = operands.In(0, n);
  if (MomentsOf(op.spec) == DType::kBFloat16) Direct(n, constants, gradient, operands.Out<BFloat16>(0, n), x);
  else Direct(n, constants, gradient, operands.Out(0, n), x);
  Divide(n, std::max(static_cast<float>(std::sqrt(SumOfSquares(n, x))), kMuonEpsilon), x);
  return Ok();
}

Status Run(const MuonUpdate& op, double lr_factor, const Operands& operands) {
  if (op.guarded && *operands.In(1, 1) != 0.0f) return Ok();
  const MuonRates rates = MuonRatesOf(op, lr_factor);
  Update(op.elements, rates.kept, rates.rate, operands.In<BFloat16>(0, op.elements),
         operands.Out(0, op.elements));
  return Ok();
}

}  // namespace windtunnel::cpu
