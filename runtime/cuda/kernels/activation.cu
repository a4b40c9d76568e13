#include "runtime/cuda/kernels/activation.h"

#include "runtime/activation_functions.h"
#include "runtime/cuda/kernels/math.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

struct Math {
  static WT_DEVICE float Sigmoid(float x) { return WT_KERNELS::Sigmoid(x); }
  static WT_DEVICE NormalDistribution Normal(float x) { return WT_KERNELS::Normal(x); }
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

// y = Gate(g) Up(u) for rows of gates and values. A thread processes the same columns of all its rows.
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

// y = x sigmoid(gate).
template <typename T>
struct GateForwardKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t rows, columns;
  bool aligned, by_row;
  const T *x, *gate;
  T* y;

  WT_DEVICE void operator()() const {
    ForEachPiece<kWidth>(columns, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           for (int64_t row = BlockY(); row < rows; row += GridY()) {
                             Pack<float, kPiece> v = Load<kPiece>(x + row * columns + i);
                             if (by_row) {
                               const float factor = Sigmoid(Float(gate[row]));
                               WT_UNROLL
                               for (int j = 0; j < kPiece; ++j) v.at[j] *= factor;
                             } else {
                               const Pack<float, kPiece> g = Load<kPiece>(gate + row * columns + i);
                               WT_UNROLL
                               for (int j = 0; j < kPiece; ++j) v.at[j] *= Sigmoid(g.at[j]);
                             }
                             Store(y + row * columns + i, v);
                           }
                         });
  }
};

// dx may be dy.
template <typename T>
struct GateBackwardKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t rows, columns;
  bool aligned;
  const T *dy, *x, *gate;
  T *dx, *dgate;

  WT_DEVICE void operator()() const {
    ForEachPiece<kWidth>(columns, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           for (int64_t row = BlockY(); row < rows; row += GridY()) {
                             const int64_t at = row * columns + i;
                             Pack<float, kPiece> d = Load<kPiece>(dy + at), v = Load<kPiece>(x + at);
                             const Pack<float, kPiece> g = Load<kPiece>(gate + at);
                             WT_UNROLL
                             for (int j = 0; j < kPiece; ++j) {
                               const float factor = Sigmoid(g.at[j]);
                               v.at[j] *= d.at[j] * factor * (1.0f - factor);
                               d.at[j] *= factor;
                             }
                             Store(dgate + at, v);
                             Store(dx + at, d);
                           }
                         });
  }
};

// By rows: a block has a row.
template <typename T>
struct RowGateBackwardKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t rows, columns;
  bool aligned;
  const T *dy, *x, *gate;
  T *dx, *dgate;

  WT_DEVICE void operator()() const {
    for (int64_t row = BlockX(); row < rows; row += GridX()) {
      const float factor = Sigmoid(Float(gate[row]));
      float sum = 0.0f;
      ForEachPiece<kWidth>(columns, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
        constexpr int kPiece = decltype(width)::value;
        const int64_t at = row * columns + i;
        Pack<float, kPiece> d = Load<kPiece>(dy + at);
        const Pack<float, kPiece> v = Load<kPiece>(x + at);
        WT_UNROLL
        for (int j = 0; j < kPiece; ++j) {
          sum += d.at[j] * v.at[j];
          d.at[j] *= factor;
        }
        Store(dx + at, d);
      });
      sum = ReduceBlock<kThreads>(sum, 0.0f, SharedMemory<float>(), Sum());
      if (Thread() == 0) dgate[row] = Rounded<T>(sum * factor * (1.0f - factor));
    }
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
  template <typename Gate, typename Up>
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
  template <typename Gate, typename Up>
  void Gated() const {
    using Kernel = GatedBackwardKernel<T, Gate, Up>;
    const T *dout = operands.In<T>(0, elements), *in = operands.In<T>(1, 2 * elements);
    T* din = operands.Out<T>(0, 2 * elements);
    const bool aligned = Aligned(dout, in, din) && op.columns % Kernel::kWidth == 0;
    queue.Launch(Kernel{op.rows, op.columns, aligned, dout, in, din}, RowGrid<Kernel>(queue, op, aligned));
  }
};

}  // namespace

void Run(Queue& queue, const ActivationForward& op, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    ActivationFunctions<Math>::Apply(op.kind, Forward<decltype(element)>{queue, op, operands});
  });
}

void Run(Queue& queue, const ActivationBackward& op, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    ActivationFunctions<Math>::Apply(op.kind, Backward<decltype(element)>{queue, op, operands});
  });
}

void Run(Queue& queue, const GateForward& op, const Operands& operands) {
  const int64_t all = op.rows * op.columns;
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = GateForwardKernel<T>;
    const T *x = operands.In<T>(0, all), *gate = operands.In<T>(1, op.by_row ? op.rows : all);
    T* y = operands.Out<T>(0, all);
    const bool aligned = Aligned(x, y) && (op.by_row || Aligned(gate)) && op.columns % Kernel::kWidth == 0;
    queue.Launch(Kernel{op.rows, op.columns, aligned, op.by_row, x, gate, y},
                 RowGrid<Kernel>(queue, op, aligned));
  });
}

void Run(Queue& queue, const GateBackward& op, const Operands& operands) {
  const int64_t all = op.rows * op.columns, gates = op.by_row ? op.rows : all;
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T *dy = operands.In<T>(0, all), *x = operands.In<T>(1, all), *gate = operands.In<T>(2, gates);
    T *dx = operands.Out<T>(0, all), *dgate = operands.Out<T>(1, gates);
    const bool rows_aligned = Aligned(dy, x, dx) && op.columns % kVector<T> == 0;
    if (op.by_row) {
      using Kernel = RowGateBackwardKernel<T>;
      queue.Launch(Kernel{op.rows, op.columns, rows_aligned, dy, x, gate, dx, dgate},
                   {queue.BlocksFor(op.rows, 1, 16)}, Kernel::kThreads / kWarp * 4);
      return;
    }
    using Kernel = GateBackwardKernel<T>;
    const bool aligned = rows_aligned && Aligned(gate, dgate);
    queue.Launch(Kernel{op.rows, op.columns, aligned, dy, x, gate, dx, dgate},
                 RowGrid<Kernel>(queue, op, aligned));
  });
}

}  // namespace windtunnel::WT_KERNELS
