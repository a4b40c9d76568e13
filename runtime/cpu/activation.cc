#include "runtime/cpu/activation.h"

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/vector_math.h"

namespace windtunnel::cpu {
namespace {

template <typename T>
WT_CPU_KERNEL void GeluForward(int64_t n, const T* in, T* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float x = ToFloat(in[i]);
    out[i] = FromFloat<T>(x * Normal(x).cdf);
  }
}

// d(x Phi(x)) = Phi(x) + x phi(x). din may be dout.
template <typename T>
WT_CPU_KERNEL void GeluBackward(int64_t n, const T* dout, const T* in, T* din) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float x = ToFloat(in[i]);
    const NormalDistribution normal = Normal(x);
    din[i] = FromFloat<T>(ToFloat(dout[i]) * (normal.cdf + x * normal.density));
  }
}

// A NaN is not below zero, so it passes.
template <typename T>
WT_CPU_KERNEL void ReluForward(int64_t n, const T* in, T* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float x = ToFloat(in[i]);
    out[i] = FromFloat<T>(x < 0.0f ? 0.0f : x);
  }
}

// Zero at zero, as torch's.
template <typename T>
WT_CPU_KERNEL void ReluBackward(int64_t n, const T* dout, const T* in, T* din) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) din[i] = FromFloat<T>(ToFloat(in[i]) <= 0.0f ? 0.0f : ToFloat(dout[i]));
}

template <typename T>
WT_CPU_KERNEL void SwigluForward(int64_t rows, int64_t n, const T* in, T* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* gate = in + row * 2 * n;
    const T* up = gate + n;
    T* y = out + row * n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float g = ToFloat(gate[i]);
      y[i] = FromFloat<T>(g * Sigmoid(g) * ToFloat(up[i]));
    }
  }
}

// silu(g) = g s(g) with s the sigmoid; silu'(g) = s (1 + g (1 - s)).
template <typename T>
WT_CPU_KERNEL void SwigluBackward(int64_t rows, int64_t n, const T* dout, const T* in, T* din) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* gate = in + row * 2 * n;
    const T* up = gate + n;
    const T* dy = dout + row * n;
    T* dgate = din + row * 2 * n;
    T* dup = dgate + n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float g = ToFloat(gate[i]), d = ToFloat(dy[i]), s = Sigmoid(g);
      dgate[i] = FromFloat<T>(d * ToFloat(up[i]) * s * (1.0f + g * (1.0f - s)));
      dup[i] = FromFloat<T>(d * g * s);
    }
  }
}

template <typename T>
void Forward(const ActivationForward& op, const Operands& operands) {
  const int64_t elements = op.rows * op.columns;
  T* out = operands.Out<T>(0, elements);
  switch (op.kind) {
    case ActivationKind::kGelu:
      return GeluForward(elements, operands.In<T>(0, elements), out);
    case ActivationKind::kRelu:
      return ReluForward(elements, operands.In<T>(0, elements), out);
    case ActivationKind::kSwiglu:
      return SwigluForward(op.rows, op.columns, operands.In<T>(0, 2 * elements), out);
  }
}

template <typename T>
void Backward(const ActivationBackward& op, const Operands& operands) {
  const int64_t elements = op.rows * op.columns;
  const T* dout = operands.In<T>(0, elements);
  switch (op.kind) {
    case ActivationKind::kGelu:
      return GeluBackward(elements, dout, operands.In<T>(1, elements), operands.Out<T>(0, elements));
    case ActivationKind::kRelu:
      return ReluBackward(elements, dout, operands.In<T>(1, elements), operands.Out<T>(0, elements));
    case ActivationKind::kSwiglu:
      return SwigluBackward(op.rows, op.columns, dout, operands.In<T>(1, 2 * elements),
                            operands.Out<T>(0, 2 * elements));
  }
}

}  // namespace

Status Run(const ActivationForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Forward<decltype(element)>(op, operands); });
  return Ok();
}

Status Run(const ActivationBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Backward<decltype(element)>(op, operands); });
  return Ok();
}

}  // namespace windtunnel::cpu
