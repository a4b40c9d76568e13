#include "runtime/cuda/kernels/elementwise.h"

#include "runtime/cuda/kernels/partials.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

// out = in * scale (+ out). out may be in.
template <typename From, typename To>
struct CopyKernel {
  static constexpr int kThreads = 256, kWidth = kCommonVector<From, To>;
  int64_t n;
  float scale;
  bool accumulate, aligned;
  const From* in;
  To* out;

  WT_DEVICE void operator()() const {
    ForEachPiece<kWidth>(n, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           Pack<float, kPiece> x = Load<kPiece>(in + i);
                           WT_UNROLL
                           for (int j = 0; j < kPiece; ++j) x.at[j] *= scale;
                           if (accumulate) {
                             const Pack<float, kPiece> before = Load<kPiece>(out + i);
                             WT_UNROLL
                             for (int j = 0; j < kPiece; ++j) x.at[j] += before.at[j];
                           }
                           Store(out + i, x);
                         });
  }
};

template <typename T>
struct FillKernel {
  static constexpr int kThreads = 256, kWidth = kVector<T>;
  int64_t n;
  bool aligned;
  double number;
  T* out;

  WT_DEVICE void operator()() const {
    const T value = Value();
    ForEachPiece<kWidth>(n, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           Pack<T, kPiece> pack;
                           WT_UNROLL
                           for (int j = 0; j < kPiece; ++j) pack.at[j] = value;
                           *reinterpret_cast<Pack<T, kPiece>*>(out + i) = pack;
                         });
  }
  WT_DEVICE T Value() const {
    if constexpr (std::is_same_v<T, int32_t>) {
      return static_cast<int32_t>(number);
    } else {
      return Rounded<T>(static_cast<float>(number));
    }
  }
};

template <typename T>
struct SumPartsKernel {
  static constexpr int kThreads = 256, kWidth = kVector<T>;
  int64_t parts, n;
  bool aligned;
  const T* in;
  T* out;

  WT_DEVICE void operator()() const {
    ForEachPiece<kWidth>(n, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           Pack<float, kPiece> sum = Load<kPiece>(in + i);
                           for (int64_t part = 1; part < parts; ++part) {
                             const Pack<float, kPiece> x = Load<kPiece>(in + part * n + i);
                             WT_UNROLL
                             for (int j = 0; j < kPiece; ++j) sum.at[j] += x.at[j];
                           }
                           Store(out + i, sum);
                         });
  }
};

// A thread processes the same columns of all its rows, so it reads the bias once.
template <typename T>
struct AddBiasKernel {
  static constexpr int kThreads = 128, kWidth = kVector<T>;
  int64_t rows, columns;
  bool aligned;
  const T* bias;
  T* y;

  WT_DEVICE void operator()() const {
    ForEachPiece<kWidth>(columns, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           const Pack<float, kPiece> b = Load<kPiece>(bias + i);
                           for (int64_t row = BlockY(); row < rows; row += GridY()) {
                             Pack<float, kPiece> x = Load<kPiece>(y + row * columns + i);
                             WT_UNROLL
                             for (int j = 0; j < kPiece; ++j) x.at[j] += b.at[j];
                             Store(y + row * columns + i, x);
                           }
                         });
  }
};

// Sums over the block's share of the rows: 32 lanes side by side with kPiece columns each, kRows rows at a
// time.
template <typename T, int kPiece>
struct ColumnSumKernel {
  static constexpr int kThreads = 256, kRows = kThreads / kWarp, kColumns = kWarp * kPiece;
  int64_t rows, columns;
  const T* in;
  float* partials;  // [GridY, columns]

  WT_DEVICE void operator()() const {
    float* place = SharedMemory<float>();  // [kRows, kColumns]
    const int64_t column = static_cast<int64_t>(BlockX()) * kColumns + Lane() * kPiece;
    const int row_of_block = Thread() / kWarp;
    Pack<float, kPiece> sum{};
    if (column < columns) {
      for (int64_t row = static_cast<int64_t>(BlockY()) * kRows + row_of_block; row < rows;
           row += static_cast<int64_t>(GridY()) * kRows) {
        const Pack<float, kPiece> x = Load<kPiece>(in + row * columns + column);
        WT_UNROLL
        for (int j = 0; j < kPiece; ++j) sum.at[j] += x.at[j];
      }
    }
    // Stored lane by lane for each j, so that neighbouring lanes access different banks.
    WT_UNROLL
    for (int j = 0; j < kPiece; ++j) place[row_of_block * kColumns + j * kWarp + Lane()] = sum.at[j];
    SyncThreads();
    if (row_of_block > 0 || column >= columns) return;
    WT_UNROLL
    for (int j = 0; j < kPiece; ++j) {
      for (int i = 1; i < kRows; ++i) sum.at[j] += place[i * kColumns + j * kWarp + Lane()];
      partials[BlockY() * columns + column + j] = sum.at[j];
    }
  }
};

// Enough blocks for the device whatever the number of columns, each with several rows per thread.
int64_t PartsOf(const ColumnSum& op, const Traits& traits) {
  constexpr int kColumns = 256, kRows = 32;
  return Queue::BlocksOn(traits, op.rows, kRows, CeilDivide(8, CeilDivide(op.columns, kColumns)));
}

}  // namespace

int64_t ScratchBytes(const ColumnSum& op, const Traits& traits) {
  return PartsOf(op, traits) * op.columns * 4;
}

template <typename T, int kPiece>
void SumColumns(Queue& queue, const ColumnSum& op, const T* in, T* out) {
  using Kernel = ColumnSumKernel<T, kPiece>;
  const int64_t across = CeilDivide(op.columns, Kernel::kColumns), parts = PartsOf(op, queue.traits());
  float* partials = queue.Scratch(parts * op.columns);
  queue.Launch(Kernel{op.rows, op.columns, in, partials}, {across, parts},
               Kernel::kRows * Kernel::kColumns * 4);
  return LaunchAddPartials(queue, parts, op.columns, op.columns, op.accumulate, partials, out);
}

template <typename From, typename To>
void Convert(Queue& queue, int64_t n, double scale, bool accumulate, const From* in, To* out) {
  using Kernel = CopyKernel<From, To>;
  return queue.Launch(Kernel{n, static_cast<float>(scale), accumulate, Aligned(in, out), in, out},
                      {queue.BlocksFor(n, Kernel::kThreads * Kernel::kWidth)});
}

void Run(Queue& queue, const Copy& op, const Operands& operands) {
  if (IsPacked(op.from) || op.moves_only())
    return queue.CopyMemory(operands.Out<char>(0, op.elements), operands.In<char>(0, op.elements),
                            op.elements * SizeOf(op.from).count());
  return WithElement(op.from, [&](auto from) {
    using From = decltype(from);
    return WithElement(op.to, [&](auto to) {
      using To = decltype(to);
      const From* in = operands.In<From>(0, op.elements);
      To* out = operands.Out<To>(0, op.elements);
      if constexpr (std::is_same_v<From, To>) {
        if (op.scale == 1.0 && !op.accumulate)
          return queue.CopyMemory(out, in, op.elements * static_cast<int64_t>(sizeof(To)));
      }
      return Convert(queue, op.elements, op.scale, op.accumulate, in, out);
    });
  });
}

void Run(Queue& queue, const Scale& op, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    auto* x = operands.Out<decltype(element)>(0, op.elements);
    return Convert(queue, op.elements, op.scale, false, x, x);
  });
}

template <typename T>
void FillWith(Queue& queue, int64_t n, double value, T* out) {
  using Kernel = FillKernel<T>;
  return queue.Launch(Kernel{n, Aligned(out), value, out},
                      {queue.BlocksFor(n, Kernel::kThreads * Kernel::kWidth)});
}

void Run(Queue& queue, const Fill& op, const Operands& operands) {
  if (op.value == 0.0)
    return queue.Clear(operands.Out<char>(0, op.elements), op.elements * SizeOf(op.dtype).count());
  if (op.dtype == DType::kInt32)
    return FillWith(queue, op.elements, op.value, operands.Out<int32_t>(0, op.elements));
  return WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    return FillWith(queue, op.elements, op.value, operands.Out<T>(0, op.elements));
  });
}

void Run(Queue& queue, const SumParts& op, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = SumPartsKernel<T>;
    const T* in = operands.In<T>(0, op.parts * op.elements);
    T* out = operands.Out<T>(0, op.elements);
    const bool aligned = Aligned(in, out) && op.elements % Kernel::kWidth == 0;
    return queue.Launch(Kernel{op.parts, op.elements, aligned, in, out},
                        {queue.BlocksFor(op.elements, Kernel::kThreads * Kernel::kWidth)});
  });
}

void Run(Queue& queue, const AddBias& op, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = AddBiasKernel<T>;
    const T* biases = operands.In<T>(1, op.biases() * op.columns);
    T* y = operands.Out<T>(0, op.biases() * op.rows * op.columns);
    const bool aligned = Aligned(biases, y) && op.columns % Kernel::kWidth == 0;
    const int64_t across = CeilDivide(op.columns, Kernel::kThreads * (aligned ? Kernel::kWidth : 1));
    for (int64_t bias = 0; bias < op.biases(); ++bias)
      queue.Launch(
          Kernel{op.rows, op.columns, aligned, biases + bias * op.columns, y + bias * op.rows * op.columns},
          {across, queue.BlocksFor(op.rows, 4, CeilDivide(16, across))});
  });
}

void Run(Queue& queue, const ColumnSum& op, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* in = operands.In<T>(0, op.biases() * op.rows * op.columns);
    T* out = operands.Out<T>(0, op.biases() * op.columns);
    const bool vectors = Aligned(in) && op.columns % kVector<T> == 0;
    for (int64_t bias = 0; bias < op.biases(); ++bias) {
      if (vectors) SumColumns<T, kVector<T>>(queue, op, in, out);
      else SumColumns<T, 1>(queue, op, in, out);
      in += op.rows * op.columns;
      out += op.columns;
    }
  });
}

}  // namespace windtunnel::WT_KERNELS
