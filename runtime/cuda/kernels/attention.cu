#include "runtime/cuda/kernels/attention.h"

#include <cmath>
#include <limits>

#include "runtime/cuda/kernels/flash_attention.h"
#include "runtime/cuda/kernels/plain_attention.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {
namespace {

// products[batch, heads, seq] = the dot products of the rows of out and dout [batch, seq, heads, head_dim];
// one warp per row.
template <typename T>
struct RowProductsKernel {
  static constexpr int kThreads = 256, kWarps = kThreads / kWarp, kWidth = kVector<T>;
  int64_t rows, heads, seq, n;
  bool aligned;
  const T *out, *dout;
  float* products;

  WT_DEVICE void operator()() const {
    for (int64_t row = BlockX() * kWarps + Thread() / kWarp; row < rows;
         row += static_cast<int64_t>(GridX()) * kWarps) {
      const int64_t head = row % heads, token = row / heads;
      float sum = 0.0f;
      ForEachPiece<kWidth>(n, aligned, Lane(), kWarp, [&](auto width, int64_t i) {
        constexpr int kPiece = decltype(width)::value;
        const Pack<float, kPiece> a = Load<kPiece>(out + row * n + i), b = Load<kPiece>(dout + row * n + i);
        WT_UNROLL
        for (int j = 0; j < kPiece; ++j) sum += a.at[j] * b.at[j];
      });
      sum = ReduceLanes(sum, Sum());
      if (Lane() == 0) products[(token / seq * heads + head) * seq + token % seq] = sum;
    }
  }
};

// Merges (out, log_sum_exp) of two sets of keys into those of both together; one warp per row.
template <typename T>
struct MergeKernel {
  static constexpr int kThreads = 256, kWarps = kThreads / kWarp, kWidth = kVector<T>;
  int64_t rows, heads, seq, n;
  bool aligned;
  const T* other;
  const float* other_sums;
  T* out;
  float* sums;

  WT_DEVICE void operator()() const {
    for (int64_t row = BlockX() * kWarps + Thread() / kWarp; row < rows;
         row += static_cast<int64_t>(GridX()) * kWarps) {
      const int64_t head = row % heads, token = row / heads;
      const int64_t statistic = (token / seq * heads + head) * seq + token % seq;
      const float a = sums[statistic], b = other_sums[statistic], most = Maximum()(a, b);
      SyncWarp();  // all lanes have read what the first one overwrites below
      if (b == -std::numeric_limits<float>::infinity()) continue;
      const float of_a = std::exp(a - most), of_b = std::exp(b - most), total = of_a + of_b;
      ForEachPiece<kWidth>(n, aligned, Lane(), kWarp, [&](auto width, int64_t i) {
        constexpr int kPiece = decltype(width)::value;
        Pack<float, kPiece> x = Load<kPiece>(out + row * n + i);
        const Pack<float, kPiece> y = Load<kPiece>(other + row * n + i);
        WT_UNROLL
        for (int j = 0; j < kPiece; ++j) x.at[j] = (of_a * x.at[j] + of_b * y.at[j]) / total;
        Store(out + row * n + i, x);
      });
      if (Lane() == 0) sums[statistic] = most + std::log(total);
    }
  }
};

template <typename Op>
AttentionShape ShapeOf(const Op& op) {
  AttentionShape shape;
  shape.batch = static_cast<int>(op.batch);
  shape.heads = static_cast<int>(op.heads);
  shape.kv_heads = static_cast<int>(op.kv_heads);
  shape.head_dim = static_cast<int>(op.head_dim);
  shape.seq = shape.key_seq = static_cast<int>(op.seq);
  shape.queries.length = shape.keys.length = shape.seq;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(op.head_dim));
  shape.query_stride = shape.key_stride = (op.heads + 2 * op.kv_heads) * op.head_dim;
  shape.out_stride = op.heads * op.head_dim;
  shape.window = static_cast<int>(op.window);
  shape.causal = op.causal;
  return shape;
}

template <typename Op>
AttentionShape WholeShapeOf(const Op& op, const KernelContext& context) {
  AttentionShape shape = ShapeOf(op);
  if (op.key_seq > 0) {
    shape.key_seq = shape.keys.length = static_cast<int>(op.key_seq);
    shape.query_stride = op.heads * op.head_dim;
    shape.key_stride = 2 * op.kv_heads * op.head_dim;
  }
  if (op.dropout.drops())
    shape.dropout = {DropoutMask(op.dropout, context), op.batch, op.heads, op.head_parts, op.seq, op.keys()};
  return shape;
}

template <typename Op>
AttentionShape ContextShapeOf(const Op& op, const KernelContext& context) {
  AttentionShape shape = ShapeOf(op);
  const int rank = context.context.rank;
  if (op.dropout.drops())
    shape.dropout = {
        DropoutMask(op.dropout, context), op.batch, op.heads, 1, op.seq * op.ranks, op.seq * op.ranks};
  shape.queries = {2, shape.seq / 2, op.ranks, rank};
  const int other = (rank - op.step + op.ranks) % op.ranks;
  shape.keys = {2 * op.blocks, shape.seq / 2, op.ranks, op.blocks > 1 ? 0 : other};
  shape.key_stride = 2 * op.kv_heads * op.head_dim;
  return shape;
}

int64_t StatisticElements(const AttentionShape& shape) {
  return static_cast<int64_t>(shape.batch) * shape.heads * shape.seq;
}

// Keys and values of cross-attention.
int64_t KeyElements(const AttentionShape& shape) {
  return static_cast<int64_t>(shape.batch) * shape.key_seq * shape.key_stride;
}

// The parts of packed projections, or of their gradients.
template <typename Parts, typename T>
Parts PackedParts(const AttentionShape& shape, T* qkv) {
  T* keys = qkv + shape.heads * shape.head_dim;
  return {qkv, keys, keys + shape.kv_heads * shape.head_dim};
}

// Operand `first`, packed; or, of cross-attention, queries in operand `first`, keys and values in the next.
template <typename T>
AttentionInputs<T> InputsOf(const AttentionShape& shape, bool is_cross, const Operands& operands,
                            size_t first) {
  const int64_t tokens = static_cast<int64_t>(shape.batch) * shape.seq;
  const T* queries = operands.In<T>(first, tokens * shape.query_stride);
  if (!is_cross) return PackedParts<AttentionInputs<T>>(shape, queries);
  const T* keys = operands.In<T>(first + 1, KeyElements(shape));
  return {queries, keys, keys + shape.kv_heads * shape.head_dim};
}
template <typename T>
AttentionGradients<T> GradientsOf(const AttentionShape& shape, bool is_cross, const Operands& operands) {
  const int64_t tokens = static_cast<int64_t>(shape.batch) * shape.seq;
  T* queries = operands.Out<T>(0, tokens * shape.query_stride);
  if (!is_cross) return PackedParts<AttentionGradients<T>>(shape, queries);
  T* keys = operands.Out<T>(1, KeyElements(shape));
  return {queries, keys, keys + shape.kv_heads * shape.head_dim};
}

template <typename T>
void Forward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in, T* out,
             float* log_sum_exp) {
  if constexpr (!std::is_same_v<T, float>) {
    if (FlashTakes(shape, in.queries, in.keys, out)) return FlashForward(queue, shape, in, out, log_sum_exp);
  }
  PlainForward<T>(queue, shape, in, out, log_sum_exp, nullptr);
}

template <typename T>
void Backward(Queue& queue, const AttentionShape& shape, const AttentionInputs<T>& in,
              AttentionSaved<T> saved, const T* out, bool accumulate_queries,
              const AttentionGradients<T>& gradients) {
  using Products = RowProductsKernel<T>;
  float* products = queue.Scratch(StatisticElements(shape));
  const int64_t rows = StatisticElements(shape);
  queue.Launch(
      Products{rows, shape.heads, shape.seq, shape.head_dim,
               shape.head_dim % Products::kWidth == 0 && Aligned(out, saved.dout), out, saved.dout, products},
      {queue.BlocksFor(rows, Products::kWarps)});
  saved.products = products;
  if constexpr (!std::is_same_v<T, float>) {
    if (saved.log_sum_exp != nullptr && FlashTakes(shape, in.queries, in.keys, saved.dout) &&
        FlashTakes(shape, gradients.queries, gradients.keys, saved.dout)) {
      return FlashBackward(queue, shape, in, saved, accumulate_queries, gradients);
    }
  }
  PlainBackward(queue, shape, in, saved, accumulate_queries, gradients);
}

int64_t SavedElements(const AttentionShape& shape, AttentionKind kind) {
  return StatisticElements(shape) * (kind == AttentionKind::kEager ? shape.key_seq : 1);
}

}  // namespace

int64_t ScratchBytes(const AttentionBackward& op, const Traits&) { return op.batch * op.heads * op.seq * 4; }
int64_t ScratchBytes(const ContextAttentionBackward& op, const Traits&) {
  return op.batch * op.heads * op.seq * 4;
}

void Run(Queue& queue, const AttentionForward& op, const KernelContext& context, const Operands& operands) {
  const AttentionShape shape = WholeShapeOf(op, context);
  const int64_t tokens = op.batch * op.seq;
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    AttentionInputs<T> in = InputsOf<T>(shape, op.key_seq > 0, operands, 0);
    if (op.biased) in.bias = operands.In<T>(1, op.heads * op.seq * op.seq);
    T* out = operands.Out<T>(0, tokens * shape.out_stride);
    const int64_t saved = SavedElements(shape, op.kind);
    if (op.kind == AttentionKind::kEager)
      return PlainForward<T>(queue, shape, in, out, nullptr, operands.Out<T>(1, saved));
    Forward(queue, shape, in, out, operands.Out(1, saved));
  });
}

void Run(Queue& queue, const AttentionBackward& op, const KernelContext& context, const Operands& operands) {
  const AttentionShape shape = WholeShapeOf(op, context);
  const int64_t tokens = op.batch * op.seq;
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t saved_elements = SavedElements(shape, op.kind);
    const bool is_cross = op.key_seq > 0;
    const size_t results = is_cross ? 3 : 2;  // out, and what was saved
    AttentionSaved<T> saved;
    saved.dout = operands.In<T>(0, tokens * shape.out_stride);
    if (op.kind == AttentionKind::kEager) saved.probabilities = operands.In<T>(results + 1, saved_elements);
    else saved.log_sum_exp = operands.In(results + 1, saved_elements);
    AttentionGradients<T> gradients = GradientsOf<T>(shape, is_cross, operands);
    if (op.biased) gradients.scores = operands.Out<T>(1, saved_elements);
    Backward(queue, shape, InputsOf<T>(shape, is_cross, operands, 1), saved,
             operands.In<T>(results, tokens * shape.out_stride), false, gradients);
  });
}

void Run(Queue& queue, const ContextAttentionForward& op, const KernelContext& context,
         const Operands& operands) {
  const AttentionShape shape = ContextShapeOf(op, context);
  const int64_t tokens = op.batch * op.seq;
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* keys = operands.In<T>(1, op.blocks * tokens * shape.key_stride);
    const AttentionInputs<T> in = {operands.In<T>(0, tokens * shape.query_stride), keys,
                                   keys + op.kv_heads * op.head_dim};
    Forward(queue, shape, in, operands.Out<T>(0, tokens * shape.out_stride),
            operands.Out(1, StatisticElements(shape)));
  });
}

void Run(Queue& queue, const ContextAttentionBackward& op, const KernelContext& context,
         const Operands& operands) {
  const AttentionShape shape = ContextShapeOf(op, context);
  const int64_t tokens = op.batch * op.seq, values = op.kv_heads * op.head_dim;
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* keys = operands.In<T>(2, op.blocks * tokens * shape.key_stride);
    T* dkeys = operands.Out<T>(1, op.blocks * tokens * shape.key_stride);
    AttentionSaved<T> saved;
    saved.dout = operands.In<T>(0, tokens * shape.out_stride);
    saved.log_sum_exp = operands.In(4, StatisticElements(shape));
    Backward(queue, shape,
             AttentionInputs<T>{operands.In<T>(1, tokens * shape.query_stride), keys, keys + values}, saved,
             operands.In<T>(3, tokens * shape.out_stride), op.accumulate,
             AttentionGradients<T>{operands.Out<T>(0, tokens * shape.query_stride), dkeys, dkeys + values});
  });
}

void Run(Queue& queue, const MergeAttention& op, const Operands& operands) {
  const int64_t rows = op.batch * op.heads * op.seq;
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    using Kernel = MergeKernel<T>;
    const T* other = operands.In<T>(0, rows * op.value_dim);
    T* out = operands.Out<T>(0, rows * op.value_dim);
    queue.Launch(Kernel{rows, op.heads, op.seq, op.value_dim,
                        op.value_dim % Kernel::kWidth == 0 && Aligned(other, out), other,
                        operands.In(1, rows), out, operands.Out(1, rows)},
                 {queue.BlocksFor(rows, Kernel::kWarps)});
  });
}

}  // namespace windtunnel::WT_KERNELS
