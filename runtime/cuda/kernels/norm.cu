#include "runtime/cuda/kernels/norm.h"

#include "runtime/cuda/kernels/partials.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

inline constexpr int kNormThreads = 256;
// Behind what a row needs of shared memory, for the sums over its threads.
inline constexpr int64_t kReduceBytes = 128;

template <typename T>
struct NormForwardKernel {
  static constexpr int kThreads = kNormThreads, kWidth = kVector<T>;
  bool rms, aligned;
  int64_t rows, n;
  const T *x, *branch, *gamma, *beta;  // branch and beta may be null
  T *sum, *y;
  float* statistics;
  float epsilon;

  WT_DEVICE void operator()() const {
    for (int64_t row = BlockX(); row < rows; row += GridX()) Normalize(row);
  }

  // Two passes for the statistics, mean first: the one-pass formula cancels where the mean is large. A thread has the same elements in
  // all of them, so the row in shared memory needs no barrier.
  WT_DEVICE void Normalize(int64_t row) const {
    float* const values = SharedMemory<float>();  // [n]
    float* const place = values + (n + 3) / 4 * 4;
    float total = 0.0f;
    ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = Input<kPiece>(row * n + i);
      Store(values + i, v);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) total += v.at[j];
    });
    const float count = static_cast<float>(n);
    const float mean = rms ? 0.0f : ReduceBlock<kThreads>(total, 0.0f, place, Sum()) / count;
    float squares = 0.0f;
    ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = Load<kPiece>(values + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) squares += (v.at[j] - mean) * (v.at[j] - mean);
    });
    const float variance = ReduceBlock<kThreads>(squares, 0.0f, place, Sum()) / count;
    const float inverse = 1.0f / std::sqrt(variance + epsilon);
    ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      Pack<float, kPiece> v = Load<kPiece>(values + i);
      const Pack<float, kPiece> g = Load<kPiece>(gamma + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) v.at[j] = (v.at[j] - mean) * inverse * g.at[j];
      if (beta != nullptr) {
        const Pack<float, kPiece> b = Load<kPiece>(beta + i);
        WT_UNROLL
        for (int j = 0; j < kPiece; ++j) v.at[j] += b.at[j];
      }
      Store(y + row * n + i, v);
    });
    if (Thread() != 0) return;
    if (rms) {
      statistics[row] = inverse;
    } else {
      statistics[2 * row] = mean;
      statistics[2 * row + 1] = inverse;
    }
  }

  // x, or x + branch as it is stored, since backward sees no other.
  template <int kPiece>
  WT_DEVICE Pack<float, kPiece> Input(int64_t i) const {
    Pack<float, kPiece> v = Load<kPiece>(x + i);
    if (branch == nullptr) return v;
    const Pack<float, kPiece> b = Load<kPiece>(branch + i);
    WT_UNROLL
    for (int j = 0; j < kPiece; ++j) v.at[j] = Float(Rounded<T>(v.at[j] + b.at[j]));
    Store(sum + i, v);
    return v;
  }
};

// With h = (x - mean) / deviation and g = dy * gamma, both rows:
//   dx = (g - mean(g) - h mean(g h)) / deviation,   dgamma += dy h,   dbeta += dy;   for RMS norm the mean is zero, and mean(g) left out.
// dx may be dy or dresidual: each element of them is read before the same element of dx is written, by the same thread.
template <typename T>
struct NormBackwardKernel {
  static constexpr int kThreads = kNormThreads, kWidth = kVector<T>;
  bool rms, aligned;
  int64_t rows, n;
  const T *dy, *x, *gamma, *dresidual;  // dresidual may be null
  const float* statistics;
  T* dx;
  float* partials;  // [GridX, 2, n]: dgamma, dbeta

  WT_DEVICE void operator()() const {
    float* const sums = SharedMemory<float>();  // [2, n], of which a thread has the elements that it works on
    for (int64_t i = Thread(); i < 2 * n; i += kThreads) sums[i] = 0.0f;
    SyncThreads();
    for (int64_t row = BlockX(); row < rows; row += GridX()) AddRow(row, sums, sums + n);
    SyncThreads();
    for (int64_t i = Thread(); i < 2 * n; i += kThreads) partials[BlockX() * 2 * n + i] = sums[i];
  }

  WT_DEVICE void AddRow(int64_t row, float* dgamma, float* dbeta) const {
    float* const place = dgamma + 2 * n;
    const float mean = rms ? 0.0f : statistics[2 * row];
    const float inverse = rms ? statistics[row] : statistics[2 * row + 1];
    float sum_g = 0.0f, sum_gh = 0.0f;
    ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = Load<kPiece>(x + row * n + i), d = Load<kPiece>(dy + row * n + i),
                                g = Load<kPiece>(gamma + i);
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
    const float mean_g = rms ? 0.0f : ReduceBlock<kThreads>(sum_g, 0.0f, place, Sum()) / count;
    const float mean_gh = ReduceBlock<kThreads>(sum_gh, 0.0f, place, Sum()) / count;
    ForEachPiece<kWidth>(n, aligned, Thread(), kThreads, [&](auto width, int64_t i) {
      constexpr int kPiece = decltype(width)::value;
      const Pack<float, kPiece> v = Load<kPiece>(x + row * n + i), d = Load<kPiece>(dy + row * n + i),
                                g = Load<kPiece>(gamma + i);
      Pack<float, kPiece> result{};
      if (dresidual != nullptr) result = Load<kPiece>(dresidual + row * n + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) {
        const float h = (v.at[j] - mean) * inverse;
        result.at[j] += (d.at[j] * g.at[j] - mean_g - h * mean_gh) * inverse;
      }
      Store(dx + row * n + i, result);
    });
  }
};

// RMS norm has no beta.
bool HasBeta(NormKind kind, bool bias) { return kind == NormKind::kLayerNorm && bias; }

int64_t StatisticsElements(NormKind kind, int64_t rows) {
  return kind == NormKind::kLayerNorm ? 2 * rows : rows;
}

}  // namespace

int64_t SharedBytes(const NormForward& op) { return (op.columns + 3) / 4 * 16 + kReduceBytes; }
int64_t SharedBytes(const NormBackward& op) { return 2 * op.columns * 4 + kReduceBytes; }

int64_t BackwardBlocks(const NormBackward& op, const Traits& traits) {
  return Queue::BlocksOn(traits, op.rows, 1, 4);
}

int64_t ScratchBytes(const NormBackward& op, const Traits& traits) {
  return BackwardBlocks(op, traits) * 2 * op.columns * 4;
}

void Run(Queue& queue, const NormForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = NormForwardKernel<T>;
    const int64_t elements = op.rows * op.columns;
    size_t in = 0, out = 0;
    Kernel k;
    k.rms = op.kind != NormKind::kLayerNorm;
    k.rows = op.rows;
    k.n = op.columns;
    k.x = operands.In<T>(in++, elements);
    k.branch = op.residual ? operands.In<T>(in++, elements) : nullptr;
    k.gamma = operands.In<T>(in++, op.columns);
    k.beta = HasBeta(op.kind, op.bias) ? operands.In<T>(in++, op.columns) : nullptr;
    k.sum = op.residual ? operands.Out<T>(out++, elements) : nullptr;
    k.y = operands.Out<T>(out++, elements);
    k.statistics = operands.Out(out++, StatisticsElements(op.kind, op.rows));
    k.epsilon = static_cast<float>(op.epsilon);
    k.aligned = op.columns % Kernel::kWidth == 0 && Aligned(k.x, k.branch, k.gamma, k.beta, k.sum, k.y);
    queue.Launch(k, {queue.BlocksFor(op.rows, 1)}, SharedBytes(op));
  });
}

void Run(Queue& queue, const NormBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = NormBackwardKernel<T>;
    const int64_t elements = op.rows * op.columns, blocks = BackwardBlocks(op, queue.traits());
    float* partials = queue.Scratch(blocks * 2 * op.columns);
    Kernel k;
    k.rms = op.kind != NormKind::kLayerNorm;
    k.rows = op.rows;
    k.n = op.columns;
    k.dy = operands.In<T>(0, elements);
    k.x = operands.In<T>(1, elements);
    k.gamma = operands.In<T>(2, op.columns);
    k.statistics = operands.In(3, StatisticsElements(op.kind, op.rows));
    k.dresidual = op.residual ? operands.In<T>(4, elements) : nullptr;
    k.dx = operands.Out<T>(0, elements);
    k.partials = partials;
    k.aligned = op.columns % Kernel::kWidth == 0 && Aligned(k.dy, k.x, k.gamma, k.dresidual, k.dx);
    queue.Launch(k, {blocks}, SharedBytes(op));
    LaunchAddPartials(queue, blocks, op.columns, 2 * op.columns, op.accumulate, partials,
                      operands.Out<T>(1, op.columns));
    if (!HasBeta(op.kind, op.bias)) return;
    LaunchAddPartials(queue, blocks, op.columns, 2 * op.columns, op.accumulate, partials + op.columns,
                      operands.Out<T>(2, op.columns));
  });
}

}  // namespace windtunnel::WT_KERNELS
