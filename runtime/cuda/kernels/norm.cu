#include "runtime/cuda/kernels/norm.h"

#include "runtime/cuda/kernels/partials.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

inline constexpr int kNormThreads = 256, kNormWarps = kNormThreads / kWarp;
// Shared memory after that of the rows, for the sums over their threads.
inline constexpr int64_t kReduceBytes = 128;

template <typename T>
struct ForwardOperands {
  bool rms, aligned;
  int64_t rows, n;
  const T *x, *branch, *gamma, *beta;  // branch and beta may be null
  T *sum, *y;
  float* statistics;
  float epsilon;

  // x, or x + branch after rounding, since backward sees only the rounded sum.
  template <int kPiece>
  WT_DEVICE Pack<float, kPiece> Input(int64_t i) const {
    const Pack<float, kPiece> v = Load<kPiece>(x + i);
    return branch == nullptr ? v : StoreSum(i, v, Load<kPiece>(branch + i));
  }
  template <int kPiece>
  WT_DEVICE Pack<float, kPiece> StoreSum(int64_t i, Pack<float, kPiece> v,
                                         const Pack<float, kPiece>& b) const {
    WT_UNROLL
    for (int j = 0; j < kPiece; ++j) v.at[j] = Float(Rounded<T>(v.at[j] + b.at[j]));
    Store(sum + i, v);
    return v;
  }
  // Writes the output from `v`, the piece of a row (as Input returned it) that begins at the row's element i.
  template <int kPiece>
  WT_DEVICE void WriteOutput(int64_t row, int64_t i, Pack<float, kPiece> v, float mean, float inverse) const {
    const Pack<float, kPiece> g = Load<kPiece>(gamma + i);
    WT_UNROLL
    for (int j = 0; j < kPiece; ++j) v.at[j] = (v.at[j] - mean) * inverse * g.at[j];
    if (beta != nullptr) {
      const Pack<float, kPiece> b = Load<kPiece>(beta + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) v.at[j] += b.at[j];
    }
    Store(y + row * n + i, v);
  }
  WT_DEVICE void WriteStatistics(int64_t row, float mean, float inverse) const {
    if (rms) {
      statistics[row] = inverse;
    } else {
      statistics[2 * row] = mean;
      statistics[2 * row + 1] = inverse;
    }
  }
};

// With h = (x - mean) / deviation and g = dy * gamma, both rows:
//   dx = (g - mean(g) - h mean(g h)) / deviation,   dgamma += dy h,   dbeta += dy.
// For RMS norm the mean is zero, and mean(g) is left out. dx may be dy or dresidual: each element of those is
// read before the same element of dx is written, by the same thread.
template <typename T>
struct BackwardOperands {
  bool rms, aligned;
  int64_t rows, n;
  const T *dy, *x, *gamma, *dresidual;  // dresidual may be null
  const float* statistics;
  T* dx;
  float* partials;  // [GridX, 2, n]: dgamma, dbeta; null: frozen

  WT_DEVICE float Mean(int64_t row) const { return rms ? 0.0f : statistics[2 * row]; }
  WT_DEVICE float Inverse(int64_t row) const { return rms ? statistics[row] : statistics[2 * row + 1]; }
};

// ---- rows held in the registers of a few warps

// Sums over the kLanes threads of a row. If a row has several warps, the whole block takes part. `place`:
// kCount floats for each warp of the block.
template <int kLanes, int kCount>
WT_DEVICE void SumOverRow(float (&sums)[kCount], float* place) {
  WT_UNROLL
  for (int i = 0; i < kCount; ++i) sums[i] = ReduceLanes(sums[i], Sum());
  if constexpr (kLanes > kWarp) {
    constexpr int kWarpsOfRow = kLanes / kWarp;
    const int warp = Thread() / kWarp, first = warp / kWarpsOfRow * kWarpsOfRow;
    if (Lane() == 0) {
      WT_UNROLL
      for (int i = 0; i < kCount; ++i) place[i * kNormWarps + warp] = sums[i];
    }
    SyncThreads();
    WT_UNROLL
    for (int i = 0; i < kCount; ++i) {
      sums[i] = 0.0f;
      WT_UNROLL
      for (int w = 0; w < kWarpsOfRow; ++w) sums[i] += place[i * kNormWarps + first + w];
    }
    SyncThreads();
  }
}

// kLanes threads share a row, up to kPieces pieces of 16 bytes each; a block has kRows rows at a time. Rows
// are whole pieces.
template <int kLanes, int kPieces>
struct RowsInRegisters {
  static constexpr int kThreads = kNormThreads, kRows = kThreads / kLanes;

  // Calls f(row, whether the row exists) for the rows of this thread, equally often in each thread of the
  // block.
  template <typename F>
  static WT_DEVICE void ForEachRow(int64_t rows, F f) {
    for (int64_t first = static_cast<int64_t>(BlockX()) * kRows; first < rows;
         first += static_cast<int64_t>(GridX()) * kRows) {
      const int64_t row = first + Thread() / kLanes;
      f(row, row < rows);
    }
  }
  // Calls f(k, i) for the thread's pieces of a row of n elements: the k-th begins at element i.
  template <int kWidth, typename F>
  static WT_DEVICE void ForEachOwnPiece(int64_t n, F f) {
    const int64_t own = static_cast<int64_t>(Thread() % kLanes) * kWidth;
    WT_UNROLL
    for (int k = 0; k < kPieces; ++k) {
      const int64_t i = own + k * kLanes * kWidth;
      if (i < n) f(k, i);
    }
  }
};

// Two passes over the registers for the statistics, mean first: the one-pass formula suffers from
// cancellation if the mean is large.
template <typename T, int kLanes, int kPieces>
struct NormForwardKernel : RowsInRegisters<kLanes, kPieces> {
  static constexpr int kWidth = kVector<T>, kResidentBlocks = kPieces > 3 ? 2 : kPieces > 2 ? 3 : 4;
  ForwardOperands<T> o;

  WT_DEVICE void operator()() const {
    this->ForEachRow(o.rows, [&](int64_t row, bool exists) { Normalize(row, exists); });
  }

  WT_DEVICE void Normalize(int64_t row, bool exists) const {
    float* const place = SharedMemory<float>();
    Pack<float, kWidth> v[kPieces];
    Words<T> x[kPieces], branch[kPieces];
    float sum[1] = {};
    const int64_t n = exists ? o.n : 0, at = row * o.n;
    // Loads everything before the first store, since no load may move across a store.
    this->template ForEachOwnPiece<kWidth>(n, [&](int k, int64_t i) {
      x[k] = LoadPiece(o.x + at + i);
      if (o.branch != nullptr) branch[k] = LoadPiece(o.branch + at + i);
    });
    this->template ForEachOwnPiece<kWidth>(n, [&](int k, int64_t i) {
      v[k] = Floats(x[k]);
      if (o.branch != nullptr) v[k] = o.StoreSum(at + i, v[k], Floats(branch[k]));
      WT_UNROLL
      for (int j = 0; j < kWidth; ++j) sum[0] += v[k].at[j];
    });
    const float count = static_cast<float>(o.n);
    float mean = 0.0f;
    if (!o.rms) {
      SumOverRow<kLanes>(sum, place);
      mean = sum[0] / count;
    }
    sum[0] = 0.0f;
    this->template ForEachOwnPiece<kWidth>(n, [&](int k, int64_t) {
      WT_UNROLL
      for (int j = 0; j < kWidth; ++j) sum[0] += (v[k].at[j] - mean) * (v[k].at[j] - mean);
    });
    SumOverRow<kLanes>(sum, place);
    const float inverse = 1.0f / std::sqrt(sum[0] / count + o.epsilon);
    this->template ForEachOwnPiece<kWidth>(
        n, [&](int k, int64_t i) { o.WriteOutput(row, i, v[k], mean, inverse); });
    if (exists && Thread() % kLanes == 0) o.WriteStatistics(row, mean, inverse);
  }
};

// Between the two passes, registers keep x, dy and dresidual in their memory format. The sums of the
// parameters' gradients stay in registers until the block has no more rows.
template <typename T, int kLanes, int kPieces>
struct NormBackwardKernel : RowsInRegisters<kLanes, kPieces> {
  using Rows = RowsInRegisters<kLanes, kPieces>;
  static constexpr int kWidth = kVector<T>, kResidentBlocks = 2;
  BackwardOperands<T> o;

  using Own = Pack<float, kWidth>[kPieces];

  WT_DEVICE void operator()() const {
    Own dgamma{}, dbeta{};
    this->ForEachRow(o.rows, [&](int64_t row, bool exists) { AddRow(row, exists, dgamma, dbeta); });
    WritePartials(dgamma, dbeta);
  }

  WT_DEVICE void AddRow(int64_t row, bool exists, Own& dgamma, Own& dbeta) const {
    const int64_t n = exists ? o.n : 0, at = row * o.n;
    const float mean = exists ? o.Mean(row) : 0.0f, inverse = exists ? o.Inverse(row) : 0.0f;
    Words<T> x[kPieces], dy[kPieces], dresidual[kPieces];
    this->template ForEachOwnPiece<kWidth>(n, [&](int k, int64_t i) {
      x[k] = LoadPiece(o.x + at + i);
      dy[k] = LoadPiece(o.dy + at + i);
      if (o.dresidual != nullptr) dresidual[k] = LoadPiece(o.dresidual + at + i);
    });
    float sums[2] = {};  // of g and of g h
    this->template ForEachOwnPiece<kWidth>(n, [&](int k, int64_t i) {
      const Pack<float, kWidth> v = Floats(x[k]), d = Floats(dy[k]), gamma = Load<kWidth>(o.gamma + i);
      WT_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const float h = (v.at[j] - mean) * inverse, g = d.at[j] * gamma.at[j];
        dgamma[k].at[j] += d.at[j] * h;
        dbeta[k].at[j] += d.at[j];
        sums[0] += g;
        sums[1] += g * h;
      }
    });
    SumOverRow<kLanes>(sums, SharedMemory<float>());
    const float count = static_cast<float>(o.n);
    const float mean_g = o.rms ? 0.0f : sums[0] / count, mean_gh = sums[1] / count;
    this->template ForEachOwnPiece<kWidth>(n, [&](int k, int64_t i) {
      const Pack<float, kWidth> v = Floats(x[k]), d = Floats(dy[k]), gamma = Load<kWidth>(o.gamma + i);
      Pack<float, kWidth> result{};
      if (o.dresidual != nullptr) result = Floats(dresidual[k]);
      WT_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const float h = (v.at[j] - mean) * inverse;
        result.at[j] += (d.at[j] * gamma.at[j] - mean_g - h * mean_gh) * inverse;
      }
      Store(o.dx + at + i, result);
    });
  }

  // Adds the rows of the block one after the other, so that sums have a fixed order.
  WT_DEVICE void WritePartials(const Own& dgamma, const Own& dbeta) const {
    if (o.partials == nullptr) return;
    float* const sums = SharedMemory<float>();  // [2, n]
    for (int turn = 0; turn < Rows::kRows; ++turn) {
      SyncThreads();
      if (Thread() / kLanes != turn) continue;
      this->template ForEachOwnPiece<kWidth>(o.n, [&](int k, int64_t i) {
        AddOrStore(turn > 0, dgamma[k], sums + i);
        AddOrStore(turn > 0, dbeta[k], sums + o.n + i);
      });
    }
    SyncThreads();
    for (int64_t i = Thread(); i < 2 * o.n; i += kNormThreads) o.partials[BlockX() * 2 * o.n + i] = sums[i];
  }

  static WT_DEVICE void AddOrStore(bool add, Pack<float, kWidth> own, float* to) {
    if (add) {
      const Pack<float, kWidth> others = Load<kWidth>(to);
      WT_UNROLL
      for (int j = 0; j < kWidth; ++j) own.at[j] += others.at[j];
    }
    Store(to, own);
  }
};

// ---- rows of any length and alignment: a block has one at a time

template <typename T>
struct NormForwardByBlock {
  static constexpr int kThreads = kNormThreads, kWidth = kVector<T>;
  ForwardOperands<T> o;

  WT_DEVICE void operator()() const {
    for (int64_t row = BlockX(); row < o.rows; row += GridX()) Normalize(row);
  }

  // A thread has the same elements in all passes, so the row in shared memory needs no barrier.
  WT_DEVICE void Normalize(int64_t row) const {
    const int64_t n = o.n;
    float* const values = SharedMemory<float>();  // [n]
    float* const place = values + (n + 3) / 4 * 4;
    float total = 0.0f;
    ForEachPiece<kWidth>(n, o.aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = o.template Input<kPiece>(row * n + i);
      Store(values + i, v);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) total += v.at[j];
    });
    const float count = static_cast<float>(n);
    const float mean = o.rms ? 0.0f : ReduceBlock<kThreads>(total, 0.0f, place, Sum()) / count;
    float squares = 0.0f;
    ForEachPiece<kWidth>(n, o.aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = Load<kPiece>(values + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) squares += (v.at[j] - mean) * (v.at[j] - mean);
    });
    const float variance = ReduceBlock<kThreads>(squares, 0.0f, place, Sum()) / count;
    const float inverse = 1.0f / std::sqrt(variance + o.epsilon);
    ForEachPiece<kWidth>(n, o.aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      o.WriteOutput(row, i, Load<decltype(width)::value>(values + i), mean, inverse);
    });
    if (Thread() == 0) o.WriteStatistics(row, mean, inverse);
  }
};

template <typename T>
struct NormBackwardByBlock {
  static constexpr int kThreads = kNormThreads, kWidth = kVector<T>;
  BackwardOperands<T> o;

  WT_DEVICE void operator()() const {
    const int64_t n = o.n;
    // [2, n]; each thread updates the elements that it works on.
    float* const sums = SharedMemory<float>();
    for (int64_t i = Thread(); i < 2 * n; i += kThreads) sums[i] = 0.0f;
    SyncThreads();
    for (int64_t row = BlockX(); row < o.rows; row += GridX()) AddRow(row, sums, sums + n);
    if (o.partials == nullptr) return;
    SyncThreads();
    for (int64_t i = Thread(); i < 2 * n; i += kThreads) o.partials[BlockX() * 2 * n + i] = sums[i];
  }

  WT_DEVICE void AddRow(int64_t row, float* dgamma, float* dbeta) const {
    const int64_t n = o.n;
    float* const place = dgamma + 2 * n;
    const float mean = o.Mean(row), inverse = o.Inverse(row);
    float sum_g = 0.0f, sum_gh = 0.0f;
    ForEachPiece<kWidth>(n, o.aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = Load<kPiece>(o.x + row * n + i), d = Load<kPiece>(o.dy + row * n + i),
                                g = Load<kPiece>(o.gamma + i);
      Pack<float, kPiece> of_gamma = Load<kPiece>(dgamma + i), of_beta = Load<kPiece>(dbeta + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) {
        const float h = (v.at[j] - mean) * inverse;
        of_gamma.at[j] += d.at[j] * h;
        of_beta.at[j] += d.at[j];
        sum_g += d.at[j] * g.at[j];
        sum_gh += d.at[j] * g.at[j] * h;
      }
      Store(dgamma + i, of_gamma);
      Store(dbeta + i, of_beta);
    });
    const float count = static_cast<float>(n);
    const float mean_g = o.rms ? 0.0f : ReduceBlock<kThreads>(sum_g, 0.0f, place, Sum()) / count;
    const float mean_gh = ReduceBlock<kThreads>(sum_gh, 0.0f, place, Sum()) / count;
    ForEachPiece<kWidth>(n, o.aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = Load<kPiece>(o.x + row * n + i), d = Load<kPiece>(o.dy + row * n + i),
                                g = Load<kPiece>(o.gamma + i);
      Pack<float, kPiece> result{};
      if (o.dresidual != nullptr) result = Load<kPiece>(o.dresidual + row * n + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) {
        const float h = (v.at[j] - mean) * inverse;
        result.at[j] += (d.at[j] * g.at[j] - mean_g - h * mean_gh) * inverse;
      }
      Store(o.dx + row * n + i, result);
    });
  }
};

// ----

// Calls f(rows) with the smallest RowsInRegisters that has room for `pieces`; returns whether there is one.
template <typename F>
bool WithRows(int64_t pieces, F f) {
  if (pieces <= 32 * 3) f(RowsInRegisters<32, 3>());
  else if (pieces <= 64 * 2) f(RowsInRegisters<64, 2>());
  else if (pieces <= 128 * 2) f(RowsInRegisters<128, 2>());
  else if (pieces <= 256 * 2) f(RowsInRegisters<256, 2>());
  else if (pieces <= 256 * 4) f(RowsInRegisters<256, 4>());
  else return false;
  return true;
}

template <typename T, int kLanes, int kPieces>
void LaunchForward(Queue& queue, RowsInRegisters<kLanes, kPieces>, const ForwardOperands<T>& o) {
  using Kernel = NormForwardKernel<T, kLanes, kPieces>;
  queue.Launch(Kernel{{}, o}, {queue.BlocksFor(o.rows, Kernel::kRows, Kernel::kResidentBlocks)},
               kReduceBytes);
}

template <typename T, int kLanes, int kPieces>
void LaunchBackward(Queue& queue, RowsInRegisters<kLanes, kPieces>, const BackwardOperands<T>& o,
                    int64_t blocks, int64_t shared_bytes) {
  queue.Launch(NormBackwardKernel<T, kLanes, kPieces>{{}, o}, {blocks}, shared_bytes);
}

}  // namespace

int64_t SharedBytes(const NormForward& op) { return (op.columns + 3) / 4 * 16 + kReduceBytes; }
int64_t SharedBytes(const NormBackward& op) { return 2 * op.columns * 4 + kReduceBytes; }

// As many blocks as stay resident with any of the kernels.
int64_t BackwardBlocks(const NormBackward& op, const Traits& traits) {
  return Queue::BlocksOn(traits, op.rows, 1, 2);
}

int64_t ScratchBytes(const NormBackward& op, const Traits& traits) {
  return op.frozen ? 0 : BackwardBlocks(op, traits) * 2 * op.columns * 4;
}

void Run(Queue& queue, const NormForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t elements = op.rows * op.columns;
    size_t in = 0, out = 0;
    ForwardOperands<T> o;
    o.rms = op.kind != NormKind::kLayerNorm;
    o.rows = op.rows;
    o.n = op.columns;
    o.x = operands.In<T>(in++, elements);
    o.branch = op.residual ? operands.In<T>(in++, elements) : nullptr;
    o.gamma = operands.In<T>(in++, op.columns);
    o.beta = HasBeta(op.kind, op.bias) ? operands.In<T>(in++, op.columns) : nullptr;
    o.sum = op.residual ? operands.Out<T>(out++, elements) : nullptr;
    o.y = operands.Out<T>(out++, elements);
    o.statistics = operands.Out(out++, StatisticsElements(op.kind, op.rows));
    o.epsilon = static_cast<float>(op.epsilon);
    o.aligned = op.columns % kVector<T> == 0 && Aligned(o.x, o.branch, o.gamma, o.beta, o.sum, o.y);
    if (o.aligned && WithRows(o.n / kVector<T>, [&](auto rows) { LaunchForward(queue, rows, o); })) return;
    queue.Launch(NormForwardByBlock<T>{o}, {queue.BlocksFor(op.rows, 1)}, SharedBytes(op));
  });
}

void Run(Queue& queue, const NormBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t elements = op.rows * op.columns, blocks = BackwardBlocks(op, queue.traits());
    BackwardOperands<T> o;
    o.rms = op.kind != NormKind::kLayerNorm;
    o.rows = op.rows;
    o.n = op.columns;
    o.dy = operands.In<T>(0, elements);
    o.x = operands.In<T>(1, elements);
    o.gamma = operands.In<T>(2, op.columns);
    o.statistics = operands.In(3, StatisticsElements(op.kind, op.rows));
    o.dresidual = op.residual ? operands.In<T>(4, elements) : nullptr;
    o.dx = operands.Out<T>(0, elements);
    o.partials = op.frozen ? nullptr : queue.Scratch(blocks * 2 * op.columns);
    o.aligned = op.columns % kVector<T> == 0 && Aligned(o.dy, o.x, o.gamma, o.dresidual, o.dx);
    const int64_t shared_bytes = SharedBytes(op);
    if (!o.aligned || !WithRows(o.n / kVector<T>,
                                [&](auto rows) { LaunchBackward(queue, rows, o, blocks, shared_bytes); })) {
      queue.Launch(NormBackwardByBlock<T>{o}, {blocks}, shared_bytes);
    }
    if (op.frozen) return;
    LaunchAddPartials(queue, blocks, op.columns, 2 * op.columns, op.accumulate, o.partials,
                      operands.Out<T>(1, op.columns),
                      HasBeta(op.kind, op.bias) ? operands.Out<T>(2, op.columns) : nullptr);
  });
}

}  // namespace windtunnel::WT_KERNELS
