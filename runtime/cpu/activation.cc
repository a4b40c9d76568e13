#include "runtime/cpu/activation.h"

#include <cmath>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/vector_math.h"

namespace windtunnel::cpu {
namespace {

// Each function is y = Value(x) and dy/dx = Slope(x). A NaN passes through both values and comparisons: none of these is above, below or within
// a bound.
struct Gelu {
  static WT_INLINE float Value(float x) { return x * Normal(x).cdf; }
  static WT_INLINE float Slope(float x) {
    const NormalDistribution normal = Normal(x);
    return normal.cdf + x * normal.density;
  }
};

// A slope of zero at zero, as torch's.
struct Relu {
  static WT_INLINE float Value(float x) { return x < 0.0f ? 0.0f : x; }
  static WT_INLINE float Slope(float x) { return x <= 0.0f ? 0.0f : 1.0f; }
};

struct SquaredRelu {
  static WT_INLINE float Value(float x) { return x < 0.0f ? 0.0f : x * x; }
  static WT_INLINE float Slope(float x) { return x < 0.0f ? 0.0f : 2.0f * x; }
};

// x s(x) with s the sigmoid.
struct Silu {
  static WT_INLINE float Value(float x) { return x * Sigmoid(x); }
  static WT_INLINE float Slope(float x) {
    const float s = Sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
  }
};

// What gpt-oss makes of the gate: c s(a c), c = min(x, 7). Slopes of bounds are one at them, as torch's.
struct ClampedGate {
  static WT_INLINE float Value(float x) {
    const float c = x > kGateLimit ? kGateLimit : x;
    return c * Sigmoid(kGateSteepness * c);
  }
  static WT_INLINE float Slope(float x) {
    const float s = Sigmoid(kGateSteepness * x);
    return x > kGateLimit ? 0.0f : s * (1.0f + kGateSteepness * x * (1.0f - s));
  }
};

struct Identity {
  static WT_INLINE float Value(float x) { return x; }
  static WT_INLINE float Slope(float) { return 1.0f; }
};

// And of the other half: one more than what is within [-7, 7].
struct ClampedValue {
  static WT_INLINE float Value(float x) {
    return 1.0f + (x > kGateLimit ? kGateLimit : (x < -kGateLimit ? -kGateLimit : x));
  }
  static WT_INLINE float Slope(float x) { return std::fabs(x) > kGateLimit ? 0.0f : 1.0f; }
};

template <typename Function, typename T>
WT_CPU_KERNEL void ForwardOf(int64_t n, const T* in, T* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = FromFloat<T>(Function::Value(ToFloat(in[i])));
}

// din may be dout.
template <typename Function, typename T>
WT_CPU_KERNEL void BackwardOf(int64_t n, const T* dout, const T* in, T* din) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) din[i] = FromFloat<T>(ToFloat(dout[i]) * Function::Slope(ToFloat(in[i])));
}

// y = Gate(g) Up(u) of rows of n gates and n values.
template <typename Gate, typename Up, typename T>
WT_CPU_KERNEL void GatedForwardOf(int64_t rows, int64_t n, const T* in, T* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* gate = in + row * 2 * n;
    const T* up = gate + n;
    T* y = out + row * n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i)
      y[i] = FromFloat<T>(Gate::Value(ToFloat(gate[i])) * Up::Value(ToFloat(up[i])));
  }
}

template <typename Gate, typename Up, typename T>
WT_CPU_KERNEL void GatedBackwardOf(int64_t rows, int64_t n, const T* dout, const T* in, T* din) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* gate = in + row * 2 * n;
    const T* up = gate + n;
    const T* dy = dout + row * n;
    T* dgate = din + row * 2 * n;
    T* dup = dgate + n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float g = ToFloat(gate[i]), u = ToFloat(up[i]), d = ToFloat(dy[i]);
      dgate[i] = FromFloat<T>(d * Up::Value(u) * Gate::Slope(g));
      dup[i] = FromFloat<T>(d * Gate::Value(g) * Up::Slope(u));
    }
  }
}

template <typename T>
struct Forward {
  const ActivationForward& op;
  const Operands& operands;
  const int64_t elements = op.rows * op.columns;

  template <typename Function>
  void Plain() const {
    ForwardOf<Function>(elements, operands.In<T>(0, elements), operands.Out<T>(0, elements));
  }
  template <typename Gate, typename Up = Identity>
  void Gated() const {
    GatedForwardOf<Gate, Up>(op.rows, op.columns, operands.In<T>(0, 2 * elements),
                             operands.Out<T>(0, elements));
  }
};

template <typename T>
struct Backward {
  const ActivationBackward& op;
  const Operands& operands;
  const int64_t elements = op.rows * op.columns;

  template <typename Function>
  void Plain() const {
    BackwardOf<Function>(elements, operands.In<T>(0, elements), operands.In<T>(1, elements),
                         operands.Out<T>(0, elements));
  }
  template <typename Gate, typename Up = Identity>
  void Gated() const {
    GatedBackwardOf<Gate, Up>(op.rows, op.columns, operands.In<T>(0, elements),
                              operands.In<T>(1, 2 * elements), operands.Out<T>(0, 2 * elements));
  }
};

template <typename Pass>
void WithFunctions(ActivationKind kind, const Pass& pass) {
  switch (kind) {
    case ActivationKind::kGelu:
      return pass.template Plain<Gelu>();
    case ActivationKind::kRelu:
      return pass.template Plain<Relu>();
    case ActivationKind::kSquaredRelu:
      return pass.template Plain<SquaredRelu>();
    case ActivationKind::kSwiglu:
      return pass.template Gated<Silu>();
    case ActivationKind::kGeglu:
      return pass.template Gated<Gelu>();
    case ActivationKind::kClampedSwiglu:
      return pass.template Gated<ClampedGate, ClampedValue>();
  }
}

}  // namespace

Status Run(const ActivationForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    WithFunctions(op.kind, Forward<decltype(element)>{op, operands});
  });
  return Ok();
}

Status Run(const ActivationBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    WithFunctions(op.kind, Backward<decltype(element)>{op, operands});
  });
  return Ok();
}

}  // namespace windtunnel::cpu
