#include "runtime/cuda/kernels/activation.h"

#include "runtime/cuda/kernels/math.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

struct Gelu {
  static WT_DEVICE float Value(float x) { return x * Normal(x).cdf; }
  static WT_DEVICE float Derivative(float x) {
    const NormalDistribution normal = Normal(x);
    return normal.cdf + x * normal.density;
  }
};

// A NaN is not below zero, so it passes; the derivative at zero is zero, as torch's.
struct Relu {
  static WT_DEVICE float Value(float x) { return x < 0.0f ? 0.0f : x; }
  static WT_DEVICE float Derivative(float x) { return x <= 0.0f ? 0.0f : 1.0f; }
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
                           for (int j = 0; j < kPiece; ++j) d.at[j] *= Function::Derivative(x.at[j]);
                           Store(din + i, d);
                         });
  }
};

// Rows of gate and up; a thread has the same columns of all its rows.
template <typename T>
struct SwigluForwardKernel {
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
                             for (int j = 0; j < kPiece; ++j) u.at[j] *= g.at[j] * Sigmoid(g.at[j]);
                             Store(out + row * columns + i, u);
                           }
                         });
  }
};

// silu(g) = g s(g) with s the sigmoid; silu'(g) = s (1 + g (1 - s)).
template <typename T>
struct SwigluBackwardKernel {
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
              const float x = g.at[j], s = Sigmoid(x);
              g.at[j] = d.at[j] * u.at[j] * s * (1.0f + x * (1.0f - s));
              u.at[j] = d.at[j] * x * s;
            }
            Store(din + gate, g);
            Store(din + gate + columns, u);
          }
        });
  }
};

template <typename T, typename Function>
void Forward(Queue& queue, int64_t n, const T* in, T* out) {
  using Kernel = ActivationForwardKernel<T, Function>;
  return queue.Launch(Kernel{n, Aligned(in, out), in, out},
                      {queue.BlocksFor(n, Kernel::kThreads * Kernel::kWidth)});
}

template <typename T, typename Function>
void Backward(Queue& queue, int64_t n, const T* dout, const T* in, T* din) {
  using Kernel = ActivationBackwardKernel<T, Function>;
  return queue.Launch(Kernel{n, Aligned(dout, in, din), dout, in, din},
                      {queue.BlocksFor(n, Kernel::kThreads * Kernel::kWidth)});
}

template <typename Kernel, typename Op>
Grid RowGrid(Queue& queue, const Op& op, bool aligned) {
  const int64_t across = CeilDivide(op.columns, Kernel::kThreads * (aligned ? Kernel::kWidth : 1));
  return {across, queue.BlocksFor(op.rows, 1, CeilDivide(16, across))};
}

}  // namespace

void Run(Queue& queue, const ActivationForward& op, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t n = op.rows * op.columns;
    T* out = operands.Out<T>(0, n);
    if (op.kind == ActivationKind::kGelu) return Forward<T, Gelu>(queue, n, operands.In<T>(0, n), out);
    if (op.kind == ActivationKind::kRelu) return Forward<T, Relu>(queue, n, operands.In<T>(0, n), out);
    using Kernel = SwigluForwardKernel<T>;
    const T* in = operands.In<T>(0, 2 * n);
    const bool aligned = Aligned(in, out) && op.columns % Kernel::kWidth == 0;
    return queue.Launch(Kernel{op.rows, op.columns, aligned, in, out}, RowGrid<Kernel>(queue, op, aligned));
  });
}

void Run(Queue& queue, const ActivationBackward& op, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t n = op.rows * op.columns;
    const T* dout = operands.In<T>(0, n);
    if (op.kind == ActivationKind::kGelu)
      return Backward<T, Gelu>(queue, n, dout, operands.In<T>(1, n), operands.Out<T>(0, n));
    if (op.kind == ActivationKind::kRelu)
      return Backward<T, Relu>(queue, n, dout, operands.In<T>(1, n), operands.Out<T>(0, n));
    using Kernel = SwigluBackwardKernel<T>;
    const T* in = operands.In<T>(1, 2 * n);
    T* din = operands.Out<T>(0, 2 * n);
    const bool aligned = Aligned(dout, in, din) && op.columns % Kernel::kWidth == 0;
    return queue.Launch(Kernel{op.rows, op.columns, aligned, dout, in, din},
                        RowGrid<Kernel>(queue, op, aligned));
  });
}

}  // namespace windtunnel::WT_KERNELS
