#include "runtime/cpu/activation.h"

#include "runtime/cpu/isa.h"
#include "runtime/cpu/vector_math.h"

namespace windtunnel::cpu {
namespace {

WT_CPU_KERNEL void GeluForward(int64_t n, const float* in, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * Normal(in[i]).cdf;
}

// d(x Phi(x)) = Phi(x) + x phi(x). din may be dout.
WT_CPU_KERNEL void GeluBackward(int64_t n, const float* dout, const float* in, float* din) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const NormalDistribution normal = Normal(in[i]);
    din[i] = dout[i] * (normal.cdf + in[i] * normal.density);
  }
}

// A NaN is not below zero, so it passes.
WT_CPU_KERNEL void ReluForward(int64_t n, const float* in, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] < 0.0f ? 0.0f : in[i];
}

// Zero at zero, as torch's.
WT_CPU_KERNEL void ReluBackward(int64_t n, const float* dout, const float* in, float* din) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) din[i] = in[i] <= 0.0f ? 0.0f : dout[i];
}

WT_CPU_KERNEL void SwigluForward(int64_t rows, int64_t n, const float* in, float* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* gate = in + row * 2 * n;
    const float* up = gate + n;
    float* y = out + row * n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = gate[i] * Sigmoid(gate[i]) * up[i];
  }
}

// silu(g) = g s(g) with s the sigmoid; silu'(g) = s (1 + g (1 - s)).
WT_CPU_KERNEL void SwigluBackward(int64_t rows, int64_t n, const float* dout, const float* in, float* din) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* gate = in + row * 2 * n;
    const float* up = gate + n;
    const float* dy = dout + row * n;
    float* dgate = din + row * 2 * n;
    float* dup = dgate + n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float s = Sigmoid(gate[i]);
      dgate[i] = dy[i] * up[i] * s * (1.0f + gate[i] * (1.0f - s));
      dup[i] = dy[i] * gate[i] * s;
    }
  }
}

}  // namespace

Status Run(const ActivationForward& op, const Operands& operands) {
  const int64_t elements = op.rows * op.columns;
  float* out = operands.Out(0, elements);
  switch (op.kind) {
    case ActivationKind::kGelu:
      GeluForward(elements, operands.In(0, elements), out);
      break;
    case ActivationKind::kRelu:
      ReluForward(elements, operands.In(0, elements), out);
      break;
    case ActivationKind::kSwiglu:
      SwigluForward(op.rows, op.columns, operands.In(0, 2 * elements), out);
      break;
  }
  return Ok();
}

Status Run(const ActivationBackward& op, const Operands& operands) {
  const int64_t elements = op.rows * op.columns;
  const float* dout = operands.In(0, elements);
  switch (op.kind) {
    case ActivationKind::kGelu:
      GeluBackward(elements, dout, operands.In(1, elements), operands.Out(0, elements));
      break;
    case ActivationKind::kRelu:
      ReluBackward(elements, dout, operands.In(1, elements), operands.Out(0, elements));
      break;
    case ActivationKind::kSwiglu:
      SwigluBackward(op.rows, op.columns, dout, operands.In(1, 2 * elements), operands.Out(0, 2 * elements));
      break;
  }
  return Ok();
}

}  // namespace windtunnel::cpu
