#include "runtime/cuda/kernels/activation.h"

#include "runtime/cuda/kernels/math.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

// Each function is y = Value(x) and dy/dx = Slope(x), as the cpu device's (runtime/cpu/activation.cc): a NaN passes through.
struct Gelu {
  static WT_DEVICE float Value(float x) { return x * Normal(x).cdf; }
  static WT_DEVICE float Slope(float x) {
    const NormalDistribution normal = Normal(x);
    return normal.cdf + x * normal.density;
  }
};

struct Relu {
  static WT_DEVICE float Value(float x) { return x < 0.0f ? 0.0f : x; }
  static WT_DEVICE float Slope(float x) { return x <= 0.0f ? 0.0f : 1.0f; }
};

struct SquaredRelu {
  static WT_DEVICE float Value(float x) { return x < 0.0f ? 0.0f : x * x; }
  static WT_DEVICE float Slope(float x) { return x < 0.0f ? 0.0f : 2.0f * x; }
};

struct Silu {
  static WT_DEVICE float Value(float x) { return x * Sigmoid(x); }
  static WT_DEVICE float Slope(float x) {
    const float s = Sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
  }
};

struct ClampedGate {
  static WT_DEVICE float Value(float x) {
    const float c = x > kGateLimit ? kGateLimit : x;
    return c * Sigmoid(kGateSteepness * c);
  }
  static WT_DEVICE float Slope(float x) {
    const float s = Sigmoid(kGateSteepness * x);
    return x > kGateLimit ? 0.0f : s * (1.0f + kGateSteepness * x * (1.0f - s));
  }
};

struct Identity {
  static WT_DEVICE float Value(float x) { return x; }
  static WT_DEVICE float Slope(float) { return 1.0f; }
};

struct ClampedValue {
  static WT_DEVICE float Value(float x) {
    return 1.0f + (x > kGateLimit ? kGateLimit : (x < -kGateLimit ? -kGateLimit : x));
  }
  static WT_DEVICE float Slope(float x) { return fabsf(x) > kGateLimit ? 0.0f : 1.0f; }
};

template <typename T, typename Function>
struct ActivationForwardKernel {
  static constexpr int kThreads = 256, kWidth = kVector<T>;
  int64_t n;
  bool aligned;
  const T* in;
  T* out;

  WT_DEVICE void operator()() const {
    ForEachPiece<kWidth>(n, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           Pack<float, kPiece> x = Load<kPiece>(in + i);
                           WT_UNROLL
                           for (int j = 0; j < kPiece; ++j) x.at[j] = Function::Value(x.at[j]);
                           Store(out + i, x);
                         });
  }
};

// din may be dout.
template <typename T, typename Function>
struct ActivationBackwardKernel {
  static constexpr int kThreads = 256, kWidth = kVector<T>;
  int64_t n;
  bool aligned;
  const T *dout, *in;
  T* din;

  WT_DEVICE void operator()() const {
    ForEachPiece<kWidth>(n, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           const Pack<float, kPiece> x = Load<kPiece>(in + i);
                           Pack<float, kPiece> d = Load<kPiece>(dout + i);
                           WT_UNROLL
                           for (int j = 0; j < kPiece; ++j) d.at[j] *= Function::Slope(x.at[j]);
                           Store(din + i, d);
                         });
  }
};

// y = Gate(g) Up(u) of rows of gates and values; a thread has the same columns of all its rows.
template <typename T, typename Gate, typename Up>
struct GatedForwardKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t rows, columns;
  bool aligned;
  const T* in;
  T* out;

  WT_DEVICE void operator()() const {
    ForEachPiece<kWidth>(columns, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           for (int64_t row = BlockY(); row < rows; row += GridY()) {
                             const T* gate = in + row * 2 * columns + i;
                             const Pack<float, kPiece> g = Load<kPiece>(gate);
                             Pack<float, kPiece> u = Load<kPiece>(gate + columns);
                             WT_UNROLL
                             for (int j = 0; j < kPiece; ++j)
                               u.at[j] = Gate::Value(g.at[j]) * Up::Value(u.at[j]);
                             Store(out + row * columns + i, u);
                           }
                         });
  }
};

template <typename T, typename Gate, typename Up>
struct GatedBackwardKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t rows, columns;
  bool aligned;
  const T *dout, *in;
  T* din;

  WT_DEVICE void operator()() const {
    ForEachPiece<kWidth>(
        columns, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(), [&](auto width, int64_t i) {
          constexpr int kPiece = decltype(width)::value;
          for (int64_t row = BlockY(); row < rows; row += GridY()) {
            const int64_t gate = row * 2 * columns + i;
            const Pack<float, kPiece> d = Load<kPiece>(dout + row * columns + i);
            Pack<float, kPiece> g = Load<kPiece>(in + gate), u = Load<kPiece>(in + gate + columns);
            WT_UNROLL
            for (int j = 0; j < kPiece; ++j) {
              const float x = g.at[j], v = u.at[j];
              g.at[j] = d.at[j] * Up::Value(v) * Gate::Slope(x);
              u.at[j] = d.at[j] * Gate::Value(x) * Up::Slope(v);
            }
            Store(din + gate, g);
            Store(din + gate + columns, u);
          }
        });
  }
};

template <typename Kernel, typename Op>
Grid RowGrid(Queue& queue, const Op& op, bool aligned) {
  const int64_t across = CeilDivide(op.columns, Kernel::kThreads * (aligned ? Kernel::kWidth : 1));
  return {across, queue.BlocksFor(op.rows, 1, CeilDivide(16, across))};
}

template <typename T>
struct Forward {
  Queue& queue;
  const ActivationForward& op;
  const Operands& operands;
  const int64_t elements = op.rows * op.columns;

  template <typename Function>
  void Plain() const {
    using Kernel = ActivationForwardKernel<T, Function>;
    const T* in = operands.In<T>(0, elements);
    T* out = operands.Out<T>(0, elements);
    queue.Launch(Kernel{elements, Aligned(in, out), in, out},
                 {queue.BlocksFor(elements, Kernel::kThreads * Kernel::kWidth)});
  }
  template <typename Gate, typename Up = Identity>
  void Gated() const {
    using Kernel = GatedForwardKernel<T, Gate, Up>;
    const T* in = operands.In<T>(0, 2 * elements);
    T* out = operands.Out<T>(0, elements);
    const bool aligned = Aligned(in, out) && op.columns % Kernel::kWidth == 0;
    queue.Launch(Kernel{op.rows, op.columns, aligned, in, out}, RowGrid<Kernel>(queue, op, aligned));
  }
};

template <typename T>
struct Backward {
  Queue& queue;
  const ActivationBackward& op;
  const Operands& operands;
  const int64_t elements = op.rows * op.columns;

  template <typename Function>
  void Plain() const {
    using Kernel = ActivationBackwardKernel<T, Function>;
    const T *dout = operands.In<T>(0, elements), *in = operands.In<T>(1, elements);
    T* din = operands.Out<T>(0, elements);
    queue.Launch(Kernel{elements, Aligned(dout, in, din), dout, in, din},
                 {queue.BlocksFor(elements, Kernel::kThreads * Kernel::kWidth)});
  }
  template <typename Gate, typename Up = Identity>
  void Gated() const {
    using Kernel = GatedBackwardKernel<T, Gate, Up>;
    const T *dout = operands.In<T>(0, elements), *in = operands.In<T>(1, 2 * elements);
    T* din = operands.Out<T>(0, 2 * elements);
    const bool aligned = Aligned(dout, in, din) && op.columns % Kernel::kWidth == 0;
    queue.Launch(Kernel{op.rows, op.columns, aligned, dout, in, din}, RowGrid<Kernel>(queue, op, aligned));
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

void Run(Queue& queue, const ActivationForward& op, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    WithFunctions(op.kind, Forward<decltype(element)>{queue, op, operands});
  });
}

void Run(Queue& queue, const ActivationBackward& op, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    WithFunctions(op.kind, Backward<decltype(element)>{queue, op, operands});
  });
}

}  // namespace windtunnel::WT_KERNELS
