#include "runtime/cpu/context_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "runtime/cpu/attention_head.h"
#include "runtime/cpu/dropout.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/softmax.h"

namespace windtunnel::cpu {
namespace {

// Offsets: queries lie in packed projections, keys and values in blocks of [batch, seq, kv_heads *
// (head_dim + value_dim)].
struct Layout {
  int64_t batch, seq, heads, kv_heads, head_dim, value_dim, window;
  int ranks, blocks, step, rank;
  bool causal;
  std::optional<DropoutMask> mask;

  template <typename Op>
  Layout(const Op& op, const KernelContext& context)
      : batch(op.batch),
        seq(op.seq),
        heads(op.heads),
        kv_heads(op.kv_heads),
        head_dim(op.head_dim),
        value_dim(op.values()),
        window(op.window),
        ranks(op.ranks),
        blocks(op.blocks),
        step(op.step),
        rank(context.context.rank),
        causal(op.causal) {
    if (op.dropout.drops()) mask.emplace(op.dropout, context);
  }

  int64_t half() const { return seq / 2; }
  int64_t packed() const { return heads * head_dim + key_columns(); }
  int64_t merged() const { return heads * value_dim; }
  int64_t key_columns() const { return kv_heads * (head_dim + value_dim); }
  int64_t tokens() const { return batch * seq; }
  int64_t KeyHead(int64_t head) const { return head / (heads / kv_heads); }
  int64_t Query(int64_t b, int64_t head) const { return b * seq * packed() + head * head_dim; }
  int64_t Merged(int64_t b, int64_t head) const { return b * seq * merged() + head * value_dim; }
  int64_t Key(int64_t b, int block, int64_t kv_head) const {
    return (block * batch + b) * seq * key_columns() + kv_head * head_dim;
  }
  int64_t Value(int64_t b, int block, int64_t kv_head) const {
    return (block * batch + b) * seq * key_columns() + kv_heads * head_dim + kv_head * value_dim;
  }
  int RankOf(int block) const { return blocks > 1 ? block : (rank - step + ranks) % ranks; }
  // The index, among the sequence's 2 x ranks chunks, of a rank's first or second half.
  int ChunkOf(int of_rank, int which) const { return which == 0 ? of_rank : 2 * ranks - 1 - of_rank; }
};

// One half of a rank's tokens, as keys, and its index among the sequence's chunks.
struct KeyChunk {
  int block, half, index;
};

// The chunks of which queries of chunk `chunk` see any key, in the sequence's order: their own one, if it is
// there, is last if attention is causal.
struct VisibleChunks {
  std::vector<KeyChunk> chunks;
  int chunk;

  VisibleChunks(const Layout& l, int chunk) : chunk(chunk) {
    for (int block = 0; block < l.blocks; ++block) {
      for (int half = 0; half < 2; ++half) {
        const int other = l.ChunkOf(l.RankOf(block), half);
        const bool is_behind = l.window > 0 && (other + 1) * l.half() <= chunk * l.half() - l.window + 1;
        if (!l.causal || (other <= chunk && !is_behind)) chunks.push_back({block, half, other});
      }
    }
    std::sort(chunks.begin(), chunks.end(),
              [](const KeyChunk& a, const KeyChunk& b) { return a.index < b.index; });
  }
  int64_t count() const { return static_cast<int64_t>(chunks.size()); }
  // Whether each query sees a part of the last chunk, its own.
  bool ends_with_own(const Layout& l) const {
    return l.causal && !chunks.empty() && chunks.back().index == chunk;
  }
};

// A block of query rows and its tile of scores: `keys` = chunks x half columns.
struct QueryBlock {
  // row: index among the rank's tokens of the sequence
  int64_t row, rows, keys;
  ScoreTile tile;
};

// With a window, chunks of all ranks are there, and those that are seen follow each other.
QueryBlock BlockAt(const Layout& l, const VisibleChunks& visible, int half, int64_t first) {
  const int64_t rows = std::min(kAttentionBlock, l.half() - first), keys = visible.count() * l.half();
  const int64_t first_query = visible.ends_with_own(l) ? keys - l.half() + first : keys;
  return {half * l.half() + first,
          rows,
          keys,
          {rows, keys, keys, first_query, 1.0f / std::sqrt(static_cast<float>(l.head_dim)), l.window}};
}

// One head's keys and values in all blocks, and the places of their gradients.
struct Heads {
  std::vector<Rows> keys, values;
};
struct HeadGradients {
  std::vector<MutableRows> keys, values;
};

// The scratch divided into parts of `seq` rows each.
template <typename T>
class RowPlaces {
 public:
  RowPlaces(Scratch& scratch, const Layout& l, int64_t count)
      : size_(ElementsBeside<T>(l.seq * std::max(l.head_dim, l.value_dim))),
        next_(scratch.Floats(count * size_)) {}
  float* Take() {
    float* place = next_;
    next_ += size_;
    return place;
  }

 private:
  int64_t size_;
  float* next_;
};

template <typename T>
Heads KeysOf(const Layout& l, const T* kv, int64_t b, int64_t kv_head, RowPlaces<T>& places) {
  Heads heads;
  for (int block = 0; block < l.blocks; ++block) {
    const T *keys = kv + l.Key(b, block, kv_head), *values = kv + l.Value(b, block, kv_head);
    heads.keys.push_back(FetchRows(l.seq, l.head_dim, keys, l.key_columns(), places.Take()));
    heads.values.push_back(FetchRows(l.seq, l.value_dim, values, l.key_columns(), places.Take()));
  }
  return heads;
}

// tile[rows, keys] = x[rows, columns] times the transposed rows of each visible chunk.
Status TimesTransposed(GemmEngine& engine, const Layout& l, const VisibleChunks& visible,
                       const QueryBlock& block, const Rows& x, const std::vector<Rows>& of_block,
                       float* tile) {
  for (int64_t i = 0; i < visible.count(); ++i) {
    const KeyChunk& chunk = visible.chunks[static_cast<size_t>(i)];
    const Rows& rows = of_block[static_cast<size_t>(chunk.block)];
    const GemmProblem problem{block.rows, l.half(), x.columns,   false,
                              true,       x.stride, rows.stride, block.keys};
    WT_RETURN_IF_ERROR(
        engine.Run(problem, x.At(block.row), rows.At(chunk.half * l.half()), nullptr, tile + i * l.half()));
  }
  return Ok();
}

// result[rows, columns] (+)= tile[rows, keys] times the rows of each visible chunk.
Status TimesRows(GemmEngine& engine, const Layout& l, const VisibleChunks& visible, const QueryBlock& block,
                 const float* tile, const std::vector<Rows>& of_block, bool accumulate,
                 const MutableRows& result) {
  for (int64_t i = 0; i < visible.count(); ++i) {
    const KeyChunk& chunk = visible.chunks[static_cast<size_t>(i)];
    const Rows& rows = of_block[static_cast<size_t>(chunk.block)];
    GemmProblem problem{block.rows, rows.columns, l.half(),    false,
                        false,      block.keys,   rows.stride, result.stride};
    problem.accumulate = accumulate || i > 0;
    WT_RETURN_IF_ERROR(engine.Run(problem, tile + i * l.half(), rows.At(chunk.half * l.half()), nullptr,
                                  result.At(block.row)));
  }
  return Ok();
}

// For each visible chunk: result += the chunk's columns of the tile, transposed, times x[rows, columns].
Status AddTransposedTimes(GemmEngine& engine, const Layout& l, const VisibleChunks& visible,
                          const QueryBlock& block, const float* tile, const Rows& x,
                          const std::vector<MutableRows>& result) {
  for (int64_t i = 0; i < visible.count(); ++i) {
    const KeyChunk& chunk = visible.chunks[static_cast<size_t>(i)];
    const MutableRows& rows = result[static_cast<size_t>(chunk.block)];
    GemmProblem problem{l.half(), x.columns, block.rows, true, false, block.keys, x.stride, rows.stride};
    problem.accumulate = true;
    WT_RETURN_IF_ERROR(
        engine.Run(problem, tile + i * l.half(), x.At(block.row), nullptr, rows.At(chunk.half * l.half())));
  }
  return Ok();
}

// The dropout of one head's probabilities: those of whole sequences.
std::optional<TileDropout> DropoutOf(const Layout& l, int64_t b, int64_t head) {
  if (!l.mask) return std::nullopt;
  const int64_t whole_seq = l.seq * l.ranks;
  const int64_t first = l.mask->FirstProbability(l.mask->SampleOf(l.batch, b), l.heads, /*head_parts=*/1,
                                                 head, whole_seq, whole_seq);
  return TileDropout{*l.mask, first, whole_seq};
}

// Calls f(dropout, tile, first column) for each visible chunk's columns of the block's tile.
template <typename F>
void ForEachChunk(const Layout& l, const TileDropout& of_head, const VisibleChunks& visible,
                  const QueryBlock& block, F f) {
  const int which = block.row < l.half() ? 0 : 1;
  const int64_t query = visible.chunk * l.half() + block.row - which * l.half();
  for (int64_t i = 0; i < visible.count(); ++i) {
    const int64_t key = visible.chunks[static_cast<size_t>(i)].index * l.half();
    ScoreTile tile = block.tile;
    tile.keys = l.half();
    tile.first_query = l.causal ? query - key : tile.keys;
    f(TileDropout{of_head.mask, of_head.first + query * of_head.stride + key, of_head.stride}, tile,
      i * l.half());
  }
}

void ZeroRows(const MutableRows& rows, int64_t first, int64_t count) {
  for (int64_t row = first; row < first + count; ++row) std::fill_n(rows.At(row), rows.columns, 0.0f);
}

// Calls f(visible chunks, block) for every block of query rows of either half, or empty(first row, rows) for
// a half that sees no key.
template <typename F, typename Empty>
Status ForEachBlock(const Layout& l, F f, Empty empty) {
  for (int half = 0; half < 2; ++half) {
    const VisibleChunks visible(l, l.ChunkOf(l.rank, half));
    if (visible.count() == 0) {
      empty(half * l.half(), l.half());
      continue;
    }
    for (int64_t first = 0; first < l.half(); first += kAttentionBlock)
      WT_RETURN_IF_ERROR(f(visible, BlockAt(l, visible, half, first)));
  }
  return Ok();
}

template <typename T>
Status Forward(GemmEngine& engine, Scratch& scratch, const Layout& l, const Operands& operands) {
  const T* qkv = operands.In<T>(0, l.tokens() * l.packed());
  const T* kv = operands.In<T>(1, l.blocks * l.tokens() * l.key_columns());
  T* out = operands.Out<T>(0, l.tokens() * l.merged());
  float* log_sum_exp = operands.Out(1, l.tokens() * l.heads);
  float* tile = operands.Out(2, AttentionWorkspaceElements(l.seq * l.blocks, false));
  for (int64_t b = 0; b < l.batch; ++b) {
    for (int64_t i = 0; i < l.heads; ++i) {
      RowPlaces<T> places(scratch, l, 2 + 2 * l.blocks);
      const Rows queries = FetchRows(l.seq, l.head_dim, qkv + l.Query(b, i), l.packed(), places.Take());
      const MutableRows result = PlaceOf(l.value_dim, out + l.Merged(b, i), l.merged(), places.Take());
      const Heads heads = KeysOf(l, kv, b, l.KeyHead(i), places);
      float* of_head = log_sum_exp + (b * l.heads + i) * l.seq;
      const std::optional<TileDropout> dropout = DropoutOf(l, b, i);
      WT_RETURN_IF_ERROR(ForEachBlock(
          l,
          [&](const VisibleChunks& visible, const QueryBlock& block) -> Status {
            WT_RETURN_IF_ERROR(TimesTransposed(engine, l, visible, block, queries, heads.keys, tile));
            TileSoftmax(block.tile, tile, of_head + block.row);
            if (dropout) {
              ForEachChunk(l, *dropout, visible, block,
                           [&](const auto& of_chunk, const auto& part, int64_t at) {
                             DropProbabilities(of_chunk, part, tile + at, tile + at, part.stride);
                           });
            }
            return TimesRows(engine, l, visible, block, tile, heads.values, false, result);
          },
          [&](int64_t first, int64_t rows) {
            ZeroRows(result, first, rows);
            std::fill_n(of_head + first, rows, -std::numeric_limits<float>::infinity());
          }));
      StoreRows(l.seq, result, out + l.Merged(b, i), l.merged());
    }
  }
  return Ok();
}

template <typename T>
struct BackwardOperands {
  const T *dout, *qkv, *kv, *out;
  const float* log_sum_exp;
  T *dqkv, *dkv;
  float *tile, *gradient;

  BackwardOperands(const Layout& l, const Operands& operands)
      : dout(operands.In<T>(0, l.tokens() * l.merged())),
        qkv(operands.In<T>(1, l.tokens() * l.packed())),
        kv(operands.In<T>(2, l.blocks * l.tokens() * l.key_columns())),
        out(operands.In<T>(3, l.tokens() * l.merged())),
        log_sum_exp(operands.In(4, l.tokens() * l.heads)),
        dqkv(operands.Out<T>(0, l.tokens() * l.packed())),
        dkv(operands.Out<T>(1, l.blocks * l.tokens() * l.key_columns())),
        tile(operands.Out(2, AttentionWorkspaceElements(l.seq * l.blocks, true))),
        gradient(tile + AttentionWorkspaceElements(l.seq * l.blocks, false)) {}
};

// Backward of one query head; adds to the gradients of its keys and values.
template <typename T>
Status BackwardOfHead(GemmEngine& engine, const Layout& l, const BackwardOperands<T>& p, int64_t b,
                      int64_t head, bool accumulate, const Heads& heads, const HeadGradients& gradients,
                      RowPlaces<T>& places) {
  const int64_t merged = l.Merged(b, head);
  T* dqueries = p.dqkv + l.Query(b, head);
  const Rows queries = FetchRows(l.seq, l.head_dim, p.qkv + l.Query(b, head), l.packed(), places.Take());
  const Rows out = FetchRows(l.seq, l.value_dim, p.out + merged, l.merged(), places.Take());
  const Rows dout = FetchRows(l.seq, l.value_dim, p.dout + merged, l.merged(), places.Take());
  const MutableRows result = PlaceOf(l.head_dim, dqueries, l.packed(), places.Take());
  if (accumulate) FetchRows<T>(l.seq, l.head_dim, dqueries, l.packed(), result.data);
  const float* of_head = p.log_sum_exp + (b * l.heads + head) * l.seq;
  const std::optional<TileDropout> dropout = DropoutOf(l, b, head);
  WT_RETURN_IF_ERROR(ForEachBlock(
      l,
      [&](const VisibleChunks& visible, const QueryBlock& block) -> Status {
        WT_RETURN_IF_ERROR(TimesTransposed(engine, l, visible, block, queries, heads.keys, p.tile));
        TileSoftmaxFromLogSumExp(block.tile, of_head + block.row, p.tile);
        WT_RETURN_IF_ERROR(TimesTransposed(engine, l, visible, block, dout, heads.values, p.gradient));
        const float *of_out = out.At(block.row), *of_dout = dout.At(block.row);
        if (dropout) {
          ForEachChunk(l, *dropout, visible, block, [&](const auto& of_chunk, const auto& part, int64_t at) {
            DroppedSoftmaxBackward(of_chunk, part, p.tile + at, of_out, of_dout, l.value_dim, dout.stride,
                                   p.gradient + at, p.tile + at, part.stride);
          });
        } else {
          TileSoftmaxBackward(block.tile, p.tile, of_out, of_dout, l.value_dim, dout.stride, p.gradient);
        }
        WT_RETURN_IF_ERROR(AddTransposedTimes(engine, l, visible, block, p.tile, dout, gradients.values));
        WT_RETURN_IF_ERROR(TimesRows(engine, l, visible, block, p.gradient, heads.keys, accumulate, result));
        return AddTransposedTimes(engine, l, visible, block, p.gradient, queries, gradients.keys);
      },
      [&](int64_t first, int64_t rows) {
        if (!accumulate) ZeroRows(result, first, rows);
      }));
  StoreRows(l.seq, result, dqueries, l.packed());
  return Ok();
}

template <typename T>
Status Backward(GemmEngine& engine, Scratch& scratch, const Layout& l, bool accumulate,
                const Operands& operands) {
  const BackwardOperands<T> p(l, operands);
  const int64_t queries_per_key = l.heads / l.kv_heads;
  for (int64_t b = 0; b < l.batch; ++b) {
    for (int64_t kv_head = 0; kv_head < l.kv_heads; ++kv_head) {
      RowPlaces<T> places(scratch, l, 4 * l.blocks + 4);
      const Heads heads = KeysOf(l, p.kv, b, kv_head, places);
      HeadGradients gradients;
      for (int block = 0; block < l.blocks; ++block) {
        T *dkeys = p.dkv + l.Key(b, block, kv_head), *dvalues = p.dkv + l.Value(b, block, kv_head);
        gradients.keys.push_back(PlaceOf(l.head_dim, dkeys, l.key_columns(), places.Take()));
        gradients.values.push_back(PlaceOf(l.value_dim, dvalues, l.key_columns(), places.Take()));
        ZeroRows(gradients.keys.back(), 0, l.seq);
        ZeroRows(gradients.values.back(), 0, l.seq);
      }
      for (int64_t i = 0; i < queries_per_key; ++i) {
        RowPlaces<T> of_query = places;
        WT_RETURN_IF_ERROR(BackwardOfHead(engine, l, p, b, kv_head * queries_per_key + i, accumulate, heads,
                                          gradients, of_query));
      }
      for (int block = 0; block < l.blocks; ++block) {
        T *dkeys = p.dkv + l.Key(b, block, kv_head), *dvalues = p.dkv + l.Value(b, block, kv_head);
        StoreRows(l.seq, gradients.keys[static_cast<size_t>(block)], dkeys, l.key_columns());
        StoreRows(l.seq, gradients.values[static_cast<size_t>(block)], dvalues, l.key_columns());
      }
    }
  }
  return Ok();
}

template <typename T>
void Merge(const MergeAttention& op, const Operands& operands) {
  const int64_t rows = op.batch * op.heads * op.seq, merged = op.heads * op.value_dim;
  const T* other = operands.In<T>(0, rows * op.value_dim);
  const float* other_sums = operands.In(1, rows);
  T* out = operands.Out<T>(0, rows * op.value_dim);
  float* sums = operands.Out(1, rows);
  for (int64_t row = 0; row < rows; ++row) {
    const float a = sums[row], b = other_sums[row], most = std::max(a, b);
    if (b == -std::numeric_limits<float>::infinity()) continue;
    const float of_a = std::exp(a - most), of_b = std::exp(b - most), total = of_a + of_b;
    const int64_t head = row / op.seq % op.heads, token = row / (op.heads * op.seq) * op.seq + row % op.seq;
    const int64_t place = token * merged + head * op.value_dim;
    for (int64_t i = place; i < place + op.value_dim; ++i)
      out[i] = FromFloat<T>((of_a * ToFloat(out[i]) + of_b * ToFloat(other[i])) / total);
    sums[row] = most + std::log(total);
  }
}

}  // namespace

Status Run(GemmEngine& engine, Scratch& scratch, const ContextAttentionForward& op,
           const KernelContext& context, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    return Forward<decltype(element)>(engine, scratch, Layout(op, context), operands);
  });
}

Status Run(GemmEngine& engine, Scratch& scratch, const ContextAttentionBackward& op,
           const KernelContext& context, const Operands& operands) {
  return WithElement(op.dtype, [&](auto element) {
    return Backward<decltype(element)>(engine, scratch, Layout(op, context), op.accumulate, operands);
  });
}

Status Run(const MergeAttention& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Merge<decltype(element)>(op, operands); });
  return Ok();
}

}  // namespace windtunnel::cpu
