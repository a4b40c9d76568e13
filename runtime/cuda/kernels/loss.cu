#include "runtime/cuda/kernels/loss.h"

#include <limits>

#include "runtime/cuda/kernels/fault.h"
#include "runtime/cuda/kernels/partials.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

inline constexpr int kLossThreads = 512;
inline constexpr int64_t kLossSharedBytes = kLossThreads / kWarp * 4;
inline constexpr int64_t kReservedShared = 1024;  // that the device reserves in each block

// The maximum of some logits, and the sum of e^(logit - maximum).
struct SoftmaxSum {
  float maximum = -std::numeric_limits<float>::infinity(), sum = 0.0f;

  template <int kPiece>
  WT_DEVICE void Add(const Pack<float, kPiece>& x) {
    float grown = maximum;
    WT_UNROLL
    for (int j = 0; j < kPiece; ++j) grown = Maximum()(x.at[j], grown);
    sum *= ExpFast(maximum - grown);
    maximum = grown;
    WT_UNROLL
    for (int j = 0; j < kPiece; ++j) sum += ExpFast(x.at[j] - grown);
  }
};

// Over the logits of one row, by the whole block; `place` is ReduceBlock's. A thread without logits adds
// nothing.
template <typename T>
WT_DEVICE SoftmaxSum SoftmaxSumOfRow(int64_t n, const T* row, float* place) {
  SoftmaxSum own;
  ForEachPieceOfRow<kVector<T>>(n, row, Thread(), kLossThreads, [&](auto width, int64_t i) {
    own.Add(Load<decltype(width)::value>(row + i));
  });
  SoftmaxSum all;
  all.maximum = ReduceBlock<kLossThreads>(own.maximum, own.maximum, place, Maximum());
  all.sum = ReduceBlock<kLossThreads>(own.sum * ExpFast(own.maximum - all.maximum), 0.0f, place, Sum());
  return all;
}

// The factor of the mean's gradient: `scale`, times the loss scale if that is not null.
WT_DEVICE float WithLossScale(float scale, const float* loss_scale) {
  return loss_scale == nullptr ? scale : scale * *loss_scale;
}

// row = e^(logits - maximum) * factor, minus `scale` at `target` (-1: nowhere). If factor is 0 (the row does
// not count), the exponentials are taken as 0 whatever the logits are. `logits` is the row or a copy of it,
// and has the same offset from a 16-byte boundary as `row`.
template <typename T>
WT_DEVICE void WriteGradient(int64_t n, const T* logits, float maximum, float factor, int64_t target,
                             float scale, T* row) {
  ForEachPieceOfRow<kVector<T>>(n, row, Thread(), kLossThreads, [&](auto width, int64_t i) {
    constexpr int kPiece = decltype(width)::value;
    Pack<float, kPiece> x{};
    if (factor != 0.0f) {
      x = Load<kPiece>(logits + i);
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) x.at[j] = ExpFast(x.at[j] - maximum) * factor;
    }
    const int64_t hit = target - i;  // index within this thread's piece
    if (hit >= 0 && hit < kPiece) {
      WT_UNROLL
      for (int j = 0; j < kPiece; ++j) x.at[j] -= j == hit ? scale : 0.0f;
    }
    Store(row + i, x);
  });
}

// One block per row: one pass computes maximum and sum together, another the gradient. The second finds the
// logits in shared memory if there is room for them.
template <typename T, bool kKeepsRow>
struct CrossEntropyKernel {
  static constexpr int kThreads = kLossThreads;
  int64_t rows, n;
  bool skips;  // targets may be kNoToken
  float mean_scale;
  const int32_t* targets;
  T* logits;
  float* losses;  // by row
  Fault* fault;
  const float* loss_scale;

  WT_DEVICE void operator()() const {
    const float scale = WithLossScale(mean_scale, loss_scale);
    float* const place = SharedMemory<float>();
    for (int64_t r = BlockX(); r < rows; r += GridX()) {
      T* const row = logits + r * n;
      const int64_t target = targets[r] >= 0 && targets[r] < n ? targets[r] : -1;
      const float target_logit = target < 0 ? 0.0f : Float(row[target]);
      const bool counts = !skips || targets[r] != kNoToken;
      const T* const kept = kKeepsRow ? Keep(row) : row;
      const SoftmaxSum of_row = SoftmaxSumOfRow(n, kept, place);  // its barriers come before the gradient
      WriteGradient(n, kept, of_row.maximum, counts ? scale / of_row.sum : 0.0f, target, scale, row);
      if (Thread() != 0) continue;
      losses[r] = counts ? of_row.maximum - target_logit + std::log(of_row.sum) : 0.0f;
      if (counts && target < 0) Report(fault, Fault::kTarget, targets[r], r, n);
    }
  }

  // Issues all loads of the row before waiting for the first. A thread reads only what it has copied itself,
  // but other threads may still read the previous row.
  WT_DEVICE const T* Keep(const T* row) const {
    constexpr int kWidth = kVector<T>;
    SyncThreads();
    T* const kept = reinterpret_cast<T*>(SharedMemory<char>() + kLossSharedBytes) + OffPieces<kWidth>(row);
    ForEachPieceOfRow<kWidth>(n, row, Thread(), kLossThreads, [&](auto width, int64_t i) {
      if constexpr (decltype(width)::value == kWidth) AsyncCopy16(kept + i, row + i, true);
      else kept[i] = row[i];
    });
    AsyncCommit();
    AsyncWait<0>();
    return kept;
  }
};

// Shared memory for a row wherever it begins. Two rows must fit on a multiprocessor: one is computed while
// the other is moved.
template <typename T>
int64_t KeptBytes(int64_t columns) {
  return (columns + 2 * kVector<T>)*static_cast<int64_t>(sizeof(T));
}

// ---- over the columns of the logits that a tensor-parallel rank holds, from `first` of the vocabulary on

template <typename T>
struct RowMaximaKernel {
  static constexpr int kThreads = kLossThreads;
  int64_t rows, n;
  const T* logits;
  float* maximum;

  WT_DEVICE void operator()() const {
    for (int64_t r = BlockX(); r < rows; r += GridX()) {
      const T* const row = logits + r * n;
      float own = -std::numeric_limits<float>::infinity();
      ForEachPieceOfRow<kVector<T>>(n, row, Thread(), kThreads, [&](auto width, int64_t i) {
        constexpr int kPiece = decltype(width)::value;
        const Pack<float, kPiece> x = Load<kPiece>(row + i);
        WT_UNROLL
        for (int j = 0; j < kPiece; ++j) own = Maximum()(x.at[j], own);
      });
      own = ReduceBlock<kThreads>(own, own, SharedMemory<float>(), Maximum());
      if (Thread() == 0) maximum[r] = own;
    }
  }
};

template <typename T>
struct RowSumsKernel {
  static constexpr int kThreads = kLossThreads;
  int64_t rows, n, first, vocab;
  bool skips;
  const T* logits;
  const int32_t* targets;
  const float* maximum;
  float *target, *sum;
  Fault* fault;

  WT_DEVICE void operator()() const {
    for (int64_t r = BlockX(); r < rows; r += GridX()) {
      const T* const row = logits + r * n;
      const float most = maximum[r];
      float own = 0.0f;
      ForEachPieceOfRow<kVector<T>>(n, row, Thread(), kThreads, [&](auto width, int64_t i) {
        constexpr int kPiece = decltype(width)::value;
        const Pack<float, kPiece> x = Load<kPiece>(row + i);
        WT_UNROLL
        for (int j = 0; j < kPiece; ++j) own += ExpFast(x.at[j] - most);
      });
      own = ReduceBlock<kThreads>(own, 0.0f, SharedMemory<float>(), Sum());
      if (Thread() != 0) continue;
      sum[r] = own;
      const int64_t t = targets[r];
      target[r] = t >= first && t < first + n ? Float(row[t - first]) - most : 0.0f;
      const bool is_known = (t >= 0 && t < vocab) || (skips && t == kNoToken);
      if (!is_known) Report(fault, Fault::kTarget, targets[r], r, vocab);
    }
  }
};

template <typename T>
struct VocabParallelLossKernel {
  static constexpr int kThreads = kLossThreads;
  int64_t rows, n, first;
  float mean_scale;
  T* logits;
  const int32_t* targets;
  const float *maximum, *target, *sum;
  float* losses;
  const float* loss_scale;

  WT_DEVICE void operator()() const {
    const float scale = WithLossScale(mean_scale, loss_scale);
    for (int64_t r = BlockX(); r < rows; r += GridX()) {
      const int64_t t = targets[r] - first;
      const bool counts = targets[r] != kNoToken;
      T* const row = logits + r * n;
      WriteGradient(n, row, maximum[r], counts ? scale / sum[r] : 0.0f, t >= 0 && t < n ? t : -1, scale, row);
      if (Thread() == 0) losses[r] = counts ? std::log(sum[r]) - target[r] : 0.0f;
    }
  }
};

// Writes the gradient and each block's sum of squared differences.
template <typename T>
struct SquaredErrorKernel {
  static constexpr int kThreads = 256, kWidth = kVector<T>;
  int64_t n;
  bool aligned;
  float mean_scale;
  const T* prediction;
  const float* target;
  T* gradient;
  double* sums;  // by block
  const float* loss_scale;

  WT_DEVICE void operator()() const {
    const float scale = WithLossScale(mean_scale, loss_scale);
    double own = 0.0;
    ForEachPiece<kWidth>(n, aligned, FirstIndex<kThreads>(), IndexStride<kThreads>(),
                         [&](auto width, int64_t i) {
                           constexpr int kPiece = decltype(width)::value;
                           Pack<float, kPiece> x = Load<kPiece>(prediction + i);
                           const Pack<float, kPiece> t = Load<kPiece>(target + i);
                           float squares = 0.0f;
                           WT_UNROLL
                           for (int j = 0; j < kPiece; ++j) {
                             const float difference = x.at[j] - t.at[j];
                             squares += difference * difference;
                             x.at[j] = scale * difference;
                           }
                           own += squares;
                           Store(gradient + i, x);
                         });
    own = ReduceBlock<kThreads>(own, 0.0, SharedMemory<double>(), Sum());
    if (Thread() == 0) sums[BlockX()] = own;
  }
};

// The loss scale is the last operand if the loss is scaled; else null.
template <typename Op>
const float* LossScaleOf(const Op& op, const Operands& operands) {
  return op.scaled ? operands.In(operands.reads.size() - 1, kLossScaleNumbers) : nullptr;
}

template <typename Op>
int64_t RowBlocks(const Queue& queue, const Op& op) {
  return queue.BlocksFor(op.rows, 1, 4);
}

}  // namespace

int64_t ScratchBytes(const CrossEntropy& op, const Traits&) { return op.rows * 4; }
int64_t ScratchBytes(const VocabParallelLoss& op, const Traits&) { return op.rows * 4; }

void Run(Queue& queue, const CrossEntropy& op, const Operands& operands) {
  const double rows = static_cast<double>(op.rows) * op.counted;
  float* losses = queue.Scratch(op.rows);
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const auto launch = [&](auto keeps, int64_t blocks, int64_t shared_bytes) {
      queue.Launch(
          CrossEntropyKernel<T, decltype(keeps)::value>{
              op.rows, op.vocab, op.skips, static_cast<float>(op.gradient_scale / rows),
              operands.In<int32_t>(1, op.rows), operands.Out<T>(1, op.rows * op.vocab), losses, queue.fault(),
              LossScaleOf(op, operands)},
          {blocks}, shared_bytes);
    };
    const int64_t kept_bytes = kLossSharedBytes + KeptBytes<T>(op.vocab);
    if (2 * (kept_bytes + kReservedShared) <= queue.traits().shared_bytes + kReservedShared)
      launch(std::true_type(), queue.BlocksFor(op.rows, 1, 2), kept_bytes);
    else launch(std::false_type(), RowBlocks(queue, op), kLossSharedBytes);
  });
  LaunchSumNumbers(queue, op.rows, 1.0 / rows, false, losses, operands.Out(0, 1));
}

void Run(Queue& queue, const VocabParallelMaximum& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    queue.Launch(RowMaximaKernel<T>{op.rows, op.vocab, operands.In<T>(0, op.rows * op.vocab),
                                    operands.Out(0, op.rows)},
                 {RowBlocks(queue, op)}, kLossSharedBytes);
  });
}

void Run(Queue& queue, const VocabParallelSums& op, const KernelContext& context, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    queue.Launch(
        RowSumsKernel<T>{op.rows, op.vocab, context.tensor.rank * op.vocab, context.tensor.ranks * op.vocab,
                         op.skips, operands.In<T>(0, op.rows * op.vocab), operands.In<int32_t>(1, op.rows),
                         operands.In(2, op.rows), operands.Out(0, op.rows), operands.Out(1, op.rows),
                         queue.fault()},
        {RowBlocks(queue, op)}, kLossSharedBytes);
  });
}

void Run(Queue& queue, const VocabParallelLoss& op, const KernelContext& context, const Operands& operands) {
  const double rows = static_cast<double>(op.rows) * op.counted;
  float* losses = queue.Scratch(op.rows);
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    queue.Launch(
        VocabParallelLossKernel<T>{
            op.rows, op.vocab, context.tensor.rank * op.vocab, static_cast<float>(op.gradient_scale / rows),
            operands.Out<T>(1, op.rows * op.vocab), operands.In<int32_t>(1, op.rows), operands.In(2, op.rows),
            operands.In(3, op.rows), operands.In(4, op.rows), losses, LossScaleOf(op, operands)},
        {RowBlocks(queue, op)});
  });
  LaunchSumNumbers(queue, op.rows, 1.0 / rows, false, losses, operands.Out(0, 1));
}

int64_t SquaredErrorBlocks(const MeanSquaredError& op, const Traits& traits) {
  return Queue::BlocksOn(traits, op.rows * op.columns, 2048, 8);
}

int64_t ScratchBytes(const MeanSquaredError& op, const Traits& traits) {
  return SquaredErrorBlocks(op, traits) * 8;
}

void Run(Queue& queue, const MeanSquaredError& op, const Operands& operands) {
  const int64_t n = op.rows * op.columns, blocks = SquaredErrorBlocks(op, queue.traits());
  const double count = static_cast<double>(n);
  double* sums = queue.Scratch<double>(blocks);
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = SquaredErrorKernel<T>;
    const T* prediction = operands.In<T>(0, n);
    const float* target = operands.In(1, n);
    T* gradient = operands.Out<T>(1, n);
    queue.Launch(
        Kernel{n, Aligned(prediction, target, gradient), static_cast<float>(2.0 * op.gradient_scale / count),
               prediction, target, gradient, sums, LossScaleOf(op, operands)},
        {blocks}, Kernel::kThreads / kWarp * 8);
  });
  LaunchSumNumbers(queue, blocks, 1.0 / count, false, sums, operands.Out(0, 1));
}

}  // namespace windtunnel::WT_KERNELS
