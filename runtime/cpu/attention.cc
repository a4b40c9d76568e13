#include "runtime/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "runtime/cpu/attention_head.h"
#include "runtime/cpu/convert.h"
#include "runtime/cpu/dropout.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/softmax.h"

namespace windtunnel::cpu {
namespace {

using Layout = AttentionLayout;

// Query rows [first, first + rows) of one head, and the keys [first_key, first_key + keys) that any of them
// may see.
struct QueryBlock {
  int64_t first = 0, rows = 0, first_key = 0, keys = 0;

  static QueryBlock Starting(int64_t first, const Layout& layout) {
    const int64_t rows = std::min(kAttentionBlock, layout.seq - first);
    if (!layout.causal) return {first, rows, 0, layout.keys};
    const int64_t first_key = layout.window == 0 ? 0 : std::max<int64_t>(0, first + 1 - layout.window);
    return {first, rows, first_key, first + rows - first_key};
  }
};

ScoreTile TileOf(const Layout& layout, const QueryBlock& block, int64_t stride) {
  return {block.rows,
          block.keys,
          stride,
          layout.causal ? block.first - block.first_key : block.keys,
          1.0f / std::sqrt(static_cast<float>(layout.head_dim)),
          layout.window};
}

// The five GEMMs of attention; `stride` is the score tile's.
// scores = Q K^T, and likewise the probabilities' gradient = dO V^T.
GemmProblem TimesTransposed(const QueryBlock& block, const Rows& queries, const Rows& keys, int64_t stride) {
  return {block.rows, block.keys, keys.columns, false, true, queries.stride, keys.stride, stride};
}
// O = P V, and likewise dQ = dS K.
GemmProblem Times(const QueryBlock& block, int64_t stride, const Rows& values, const MutableRows& result) {
  return {block.rows, values.columns, block.keys, false, false, stride, values.stride, result.stride};
}
// dV = P^T dO, and likewise dK = dS^T Q; summed over query blocks and over the query heads that share a key
// head.
GemmProblem TransposedTimesRows(const QueryBlock& block, int64_t stride, const Rows& rows,
                                const MutableRows& result, bool accumulate) {
  GemmProblem problem{block.keys, rows.columns, block.rows, true, false, stride, rows.stride, result.stride};
  problem.accumulate = accumulate;
  return problem;
}

// The probabilities of all heads (eager) or their rows' log-sum-exp (flash); the other pointer is null.
template <typename T>
struct Saved {
  T* probabilities;
  std::conditional_t<std::is_const_v<T>, const float, float>* log_sum_exp;
};

struct ForwardHead {
  Rows queries, keys, values;
  MutableRows out;
  int64_t first_row;  // among all heads' rows
  std::optional<TileDropout> dropout;  // of the probabilities of all the head's queries and keys
};

// The dropout of a head's probabilities.
template <typename AttentionOp>
std::optional<TileDropout> DropoutOf(const AttentionOp& op, const std::optional<DropoutMask>& mask, int64_t b,
                                     int64_t head) {
  if (!mask) return std::nullopt;
  const int64_t sample = mask->SampleOf(op.batch, b);
  return TileDropout{*mask, mask->FirstProbability(sample, op.heads, op.head_parts, head, op.seq, op.keys()),
                     op.keys()};
}

template <typename AttentionOp>
std::optional<DropoutMask> MaskOf(const AttentionOp& op, const KernelContext& context) {
  if (!op.dropout.drops()) return std::nullopt;
  return DropoutMask(op.dropout, context);
}

TileDropout At(const TileDropout& of_head, const QueryBlock& block) {
  return {of_head.mask, of_head.first + block.first * of_head.stride + block.first_key, of_head.stride};
}

// Rounds a block's probabilities into `saved`, unless they were computed there, and clears the rest of the
// rows, which no block computes.
template <typename T>
void Keep(const Layout& l, const QueryBlock& block, const float* scores, int64_t stride, T* saved) {
  for (int64_t row = 0; row < block.rows; ++row) {
    T* of_row = saved + row * l.keys;
    T* kept = of_row + block.first_key;
    if constexpr (!std::is_same_v<T, float>) Convert(block.keys, 1.0f, scores + row * stride, kept);
    std::fill(of_row, kept, T());
    std::fill(kept + block.keys, of_row + l.keys, T());
  }
}

// The block's rows of a head's square [seq, keys], from the first key on that any of them may see.
template <typename T>
T* RowsOf(const Layout& l, const QueryBlock& block, T* square) {
  return square + block.first * l.keys + block.first_key;
}

// Adds a head's biases to the scores, which are still to be scaled.
template <typename T>
void AddBias(const Layout& l, const QueryBlock& block, const T* bias, float* scores, int64_t stride) {
  const float unscaled = std::sqrt(static_cast<float>(l.head_dim));
  const T* rows = RowsOf(l, block, bias);
  for (int64_t row = 0; row < block.rows; ++row)
    for (int64_t key = 0; key < block.keys; ++key)
      scores[row * stride + key] += unscaled * ToFloat(rows[row * l.keys + key]);
}

// Writes a head's gradients of biased scores, given those of the scores before they were scaled; zeros for
// keys that the block does not see.
template <typename T>
void KeepScoreGradients(const Layout& l, const QueryBlock& block, const float* gradient, int64_t stride,
                        T* kept) {
  const float unscaled = std::sqrt(static_cast<float>(l.head_dim));
  for (int64_t row = 0; row < block.rows; ++row) {
    T* of_row = kept + (block.first + row) * l.keys;
    std::fill_n(of_row, block.first_key, T());
    of_row += block.first_key;
    for (int64_t key = 0; key < block.keys; ++key)
      of_row[key] = FromFloat<T>(unscaled * gradient[row * stride + key]);
    std::fill_n(of_row + block.keys, l.keys - block.first_key - block.keys, T());
  }
}

// `bias`: the head's square; may be null.
template <typename T>
Status ForwardBlock(GemmEngine& engine, const Layout& l, const QueryBlock& block, const ForwardHead& head,
                    const T* bias, const Saved<T>& saved, float* workspace) {
  const bool eager = saved.probabilities != nullptr;
  const int64_t first_row = head.first_row + block.first;
  float* scores = workspace;
  int64_t stride = block.keys;
  if constexpr (std::is_same_v<T, float>) {
    if (eager) scores = saved.probabilities + first_row * l.keys + block.first_key, stride = l.keys;
  }
  WT_RETURN_IF_ERROR(engine.Run(TimesTransposed(block, head.queries, head.keys, stride),
                                head.queries.At(block.first), head.keys.At(block.first_key), nullptr,
                                scores));
  if (bias != nullptr) AddBias(l, block, bias, scores, stride);
  TileSoftmax(TileOf(l, block, stride), scores, eager ? nullptr : saved.log_sum_exp + first_row);
  if (eager) Keep(l, block, scores, stride, saved.probabilities + first_row * l.keys);
  if (head.dropout) {
    DropProbabilities(At(*head.dropout, block), TileOf(l, block, stride), scores, workspace, block.keys);
    scores = workspace;
    stride = block.keys;
  }
  return engine.Run(Times(block, stride, head.values, head.out), scores, head.values.At(block.first_key),
                    nullptr, head.out.At(block.first));
}

template <typename T>
Status Forward(GemmEngine& engine, Scratch& scratch, const AttentionForward& op, const KernelContext& context,
               const Operands& operands) {
  const Layout l(op);
  const std::optional<DropoutMask> mask = MaskOf(op, context);
  const bool eager = op.kind == AttentionKind::kEager;
  const T* queries = operands.In<T>(0, l.QueryElements());
  const T* keys = l.is_cross ? operands.In<T>(1, l.KeyElements()) : queries;
  const T* bias = op.biased ? operands.In<T>(1, op.heads * l.Square()) : nullptr;
  T* out = operands.Out<T>(0, l.MergedElements());
  const int64_t saved_elements = l.SavedElements(op.kind);
  const Saved<T> saved = {eager ? operands.Out<T>(1, saved_elements) : nullptr,
                          eager ? nullptr : operands.Out(1, saved_elements)};
  float* workspace = operands.Out(2, AttentionWorkspaceElements(l.seq, l.keys, /*backward=*/false));
  const Places<T> places(scratch, l, 4);
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t i = 0; i < op.heads; ++i) {
      const ForwardHead head = {
          FetchRows(l.seq, l.head_dim, queries + l.Query(b, i), l.query_stride, places.At(0)),
          FetchRows(l.keys, l.head_dim, keys + l.Key(b, i), l.key_stride, places.At(1)),
          FetchRows(l.keys, l.value_dim, keys + l.Value(b, i), l.key_stride, places.At(2)),
          PlaceOf(l.value_dim, out + l.Merged(b, i), l.merged, places.At(3)),
          (b * l.heads + i) * l.seq,
          DropoutOf(op, mask, b, i)};
      for (int64_t first = 0; first < op.seq; first += kAttentionBlock) {
        WT_RETURN_IF_ERROR(ForwardBlock(engine, l, QueryBlock::Starting(first, l), head,
                                        bias == nullptr ? nullptr : bias + i * l.Square(), saved, workspace));
      }
      StoreRows(l.seq, head.out, out + l.Merged(b, i), l.merged);
    }
  }
  return Ok();
}

struct BackwardHead {
  Rows queries, keys, values, out, dout;
  MutableRows dqueries, dkeys, dvalues;
  int64_t first_row;
  std::optional<TileDropout> dropout;
};

// A block's probabilities: as saved, or recomputed into the workspace.
struct Tile {
  const float* probabilities;
  int64_t stride;
};

template <typename T>
Result<Tile> Probabilities(GemmEngine& engine, const Layout& l, const QueryBlock& block,
                           const BackwardHead& head, const Saved<const T>& saved, float* workspace) {
  const int64_t first_row = head.first_row + block.first;
  if (saved.probabilities != nullptr) {
    const T* probabilities = saved.probabilities + first_row * l.keys + block.first_key;
    if constexpr (std::is_same_v<T, float>) {
      return Tile{probabilities, l.keys};
    } else {
      ConvertRows(block.rows, block.keys, probabilities, l.keys, workspace, block.keys);
      return Tile{workspace, block.keys};
    }
  }
  WT_RETURN_IF_ERROR(engine.Run(TimesTransposed(block, head.queries, head.keys, block.keys),
                                head.queries.At(block.first), head.keys.At(block.first_key), nullptr,
                                workspace));
  TileSoftmaxFromLogSumExp(TileOf(l, block, block.keys), saved.log_sum_exp + first_row, workspace);
  return Tile{workspace, block.keys};
}

// `dscores`, of all heads, may be null. `first_touch`: the gradients of this head's keys and values are still
// unwritten, and the block sees all keys.
template <typename T>
Status BackwardBlock(GemmEngine& engine, const Layout& l, const QueryBlock& block, bool first_touch,
                     const BackwardHead& head, const Saved<const T>& saved, T* dscores, float* workspace) {
  WT_ASSIGN_OR_RETURN(const Tile tile, Probabilities<T>(engine, l, block, head, saved, workspace));
  const int64_t stride = tile.stride;
  float* gradient = workspace + std::min(kAttentionBlock, l.seq) * l.keys;  // the second tile
  const float *out = head.out.At(block.first), *dout = head.dout.At(block.first);
  const ScoreTile scores = TileOf(l, block, stride);
  const float* weights = tile.probabilities;  // of the values
  int64_t weights_stride = stride;

  WT_RETURN_IF_ERROR(engine.Run(TimesTransposed(block, head.dout, head.values, stride), dout,
                                head.values.At(block.first_key), nullptr, gradient));
  if (head.dropout) {
    DroppedSoftmaxBackward(At(*head.dropout, block), scores, tile.probabilities, out, dout, head.dout.columns,
                           head.dout.stride, gradient, workspace, block.keys);
    weights = workspace;
    weights_stride = block.keys;
  } else {
    TileSoftmaxBackward(scores, tile.probabilities, out, dout, head.dout.columns, head.dout.stride, gradient);
  }
  if (dscores != nullptr) KeepScoreGradients(l, block, gradient, stride, dscores + head.first_row * l.keys);
  WT_RETURN_IF_ERROR(
      engine.Run(TransposedTimesRows(block, weights_stride, head.dout, head.dvalues, !first_touch), weights,
                 dout, nullptr, head.dvalues.At(block.first_key)));
  WT_RETURN_IF_ERROR(engine.Run(Times(block, stride, head.keys, head.dqueries), gradient,
                                head.keys.At(block.first_key), nullptr, head.dqueries.At(block.first)));
  return engine.Run(TransposedTimesRows(block, stride, head.queries, head.dkeys, !first_touch), gradient,
                    head.queries.At(block.first), nullptr, head.dkeys.At(block.first_key));
}

template <typename T>
struct BackwardOperands {
  const T *dout, *queries, *keys, *out;
  Saved<const T> saved;
  T *dqueries, *dkeys;
  T* dscores;  // null: not asked for
  float* workspace;
};

template <typename T>
BackwardOperands<T> BackwardOperandsOf(const Layout& l, const AttentionBackward& op,
                                       const Operands& operands) {
  const bool eager = op.kind == AttentionKind::kEager;
  const int64_t saved = l.SavedElements(op.kind);
  const T* queries = operands.In<T>(1, l.QueryElements());
  T* dqueries = operands.Out<T>(0, l.QueryElements());
  const size_t own = l.is_cross ? 1 : 0;  // keys and values have an operand, and so do their gradients
  T* dscores = op.biased ? operands.Out<T>(1 + own, op.batch * op.heads * l.Square()) : nullptr;
  return {operands.In<T>(0, l.MergedElements()),
          queries,
          l.is_cross ? operands.In<T>(2, l.KeyElements()) : queries,
          operands.In<T>(2 + own, l.MergedElements()),
          {eager ? operands.In<T>(3 + own, saved) : nullptr, eager ? nullptr : operands.In(3 + own, saved)},
          dqueries,
          l.is_cross ? operands.Out<T>(1, l.KeyElements()) : dqueries,
          dscores,
          operands.Out(1 + own + (op.biased ? 1 : 0),
                       AttentionWorkspaceElements(l.seq, l.keys, /*backward=*/true))};
}

void Clear(int64_t count, const MutableRows& rows) {
  for (int64_t row = 0; row < count; ++row) std::fill_n(rows.At(row), rows.columns, 0.0f);
}

// Runs blocks from the last to the first. Without a window the last block sees every key, so it overwrites
// the gradients of keys and values, which then need no clearing. They stay in fp32 until the last query head
// that shares them is done.
template <typename T>
Status Backward(GemmEngine& engine, Scratch& scratch, const AttentionBackward& op,
                const KernelContext& context, const Operands& operands) {
  const Layout l(op);
  const std::optional<DropoutMask> mask = MaskOf(op, context);
  const BackwardOperands<T> p = BackwardOperandsOf<T>(l, op, operands);
  const Places<T> places(scratch, l, 8);
  const int64_t last = (op.seq - 1) / kAttentionBlock * kAttentionBlock;
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t i = 0; i < op.heads; ++i) {
      const int64_t query = l.Query(b, i), key = l.Key(b, i), value = l.Value(b, i), merged = l.Merged(b, i);
      const BackwardHead head = {
          FetchRows(l.seq, l.head_dim, p.queries + query, l.query_stride, places.At(0)),
          FetchRows(l.keys, l.head_dim, p.keys + key, l.key_stride, places.At(1)),
          FetchRows(l.keys, l.value_dim, p.keys + value, l.key_stride, places.At(2)),
          FetchRows(l.seq, l.value_dim, p.out + merged, l.merged, places.At(3)),
          FetchRows(l.seq, l.value_dim, p.dout + merged, l.merged, places.At(4)),
          PlaceOf(l.head_dim, p.dqueries + query, l.query_stride, places.At(5)),
          PlaceOf(l.head_dim, p.dkeys + key, l.key_stride, places.At(6)),
          PlaceOf(l.value_dim, p.dkeys + value, l.key_stride, places.At(7)),
          (b * l.heads + i) * l.seq,
          DropoutOf(op, mask, b, i)};
      const bool begins_group = i % l.heads_per_kv_head() == 0;
      if (l.window > 0 && begins_group) {
        Clear(l.keys, head.dkeys);
        Clear(l.keys, head.dvalues);
      }
      for (int64_t first = last; first >= 0; first -= kAttentionBlock) {
        const bool first_touch = l.window == 0 && first == last && begins_group;
        WT_RETURN_IF_ERROR(BackwardBlock<T>(engine, l, QueryBlock::Starting(first, l), first_touch, head,
                                            p.saved, p.dscores, p.workspace));
      }
      StoreRows(l.seq, head.dqueries, p.dqueries + query, l.query_stride);
      if ((i + 1) % l.heads_per_kv_head() != 0) continue;
      StoreRows(l.keys, head.dkeys, p.dkeys + key, l.key_stride);
      StoreRows(l.keys, head.dvalues, p.dkeys + value, l.key_stride);
    }
  }
  return Ok();
}

}  // namespace

Status Run(GemmEngine& engine, Scratch& scratch, const AttentionForward& op, const KernelContext& context,
           const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    return Forward<decltype(element)>(engine, scratch, op, context, operands);
  });
}

Status Run(GemmEngine& engine, Scratch& scratch, const AttentionBackward& op, const KernelContext& context,
           const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    return Backward<decltype(element)>(engine, scratch, op, context, operands);
  });
}

}  // namespace windtunnel::cpu
