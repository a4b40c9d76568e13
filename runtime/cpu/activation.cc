#include "runtime/cpu/activation.h"

#include "runtime/activation_functions.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/vector_math.h"

namespace windtunnel::cpu {
namespace {

struct Math {
  static WT_INLINE float Sigmoid(float x) { return cpu::Sigmoid(x); }
  static WT_INLINE NormalDistribution Normal(float x) { return cpu::Normal(x); }
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

// y = Gate(g) Up(u), for rows of n gates and n values.
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
WT_CPU_KERNEL void GateRows(const GateForward& op, const T* x, const T* gate, T* y) {
  const int64_t n = op.columns;
  for (int64_t row = 0; row < op.rows; ++row) {
    const T* in = x + row * n;
    T* out = y + row * n;
    if (op.by_row) {
      const float factor = Sigmoid(ToFloat(gate[row]));
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) out[i] = FromFloat<T>(ToFloat(in[i]) * factor);
    } else {
      const T* g = gate + row * n;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) out[i] = FromFloat<T>(ToFloat(in[i]) * Sigmoid(ToFloat(g[i])));
    }
  }
}

template <typename T>
WT_CPU_KERNEL void GateRowsBackward(const GateBackward& op, const T* dy, const T* x, const T* gate, T* dx,
                                    T* dgate) {
  const int64_t n = op.columns;
  for (int64_t row = 0; row < op.rows; ++row) {
    const T *d = dy + row * n, *in = x + row * n;
    T* out = dx + row * n;
    if (op.by_row) {
      const float factor = Sigmoid(ToFloat(gate[row]));
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < n; ++i) {
        const float gradient = ToFloat(d[i]);
        sum += gradient * ToFloat(in[i]);
        out[i] = FromFloat<T>(gradient * factor);
      }
      dgate[row] = FromFloat<T>(sum * factor * (1.0f - factor));
    } else {
      const T* g = gate + row * n;
      T* of_gate = dgate + row * n;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float factor = Sigmoid(ToFloat(g[i])), gradient = ToFloat(d[i]);
        of_gate[i] = FromFloat<T>(gradient * ToFloat(in[i]) * factor * (1.0f - factor));
        out[i] = FromFloat<T>(gradient * factor);
      }
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
  template <typename Gate, typename Up>
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
  template <typename Gate, typename Up>
  void Gated() const {
    GatedBackwardOf<Gate, Up>(op.rows, op.columns, operands.In<T>(0, elements),
                              operands.In<T>(1, 2 * elements), operands.Out<T>(0, 2 * elements));
  }
};

}  // namespace

Status Run(const ActivationForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    ActivationFunctions<Math>::Apply(op.kind, Forward<decltype(element)>{op, operands});
  });
  return Ok();
}

Status Run(const ActivationBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    ActivationFunctions<Math>::Apply(op.kind, Backward<decltype(element)>{op, operands});
  });
  return Ok();
}

Status Run(const GateForward& op, const Operands& operands) {
  const int64_t all = op.rows * op.columns, gates = op.by_row ? op.rows : all;
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    GateRows(op, operands.In<T>(0, all), operands.In<T>(1, gates), operands.Out<T>(0, all));
  });
  return Ok();
}

Status Run(const GateBackward& op, const Operands& operands) {
  const int64_t all = op.rows * op.columns, gates = op.by_row ? op.rows : all;
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    GateRowsBackward(op, operands.In<T>(0, all), operands.In<T>(1, all), operands.In<T>(2, gates),
                     operands.Out<T>(0, all), operands.Out<T>(1, gates));
  });
  return Ok();
}

}  // namespace windtunnel::cpu
