#include "runtime/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "runtime/cpu/softmax.h"

namespace windtunnel::cpu {
namespace {

// Where the parts of one head lie within the packed projections, and what a product with them looks like.
struct Layout {
  int64_t batch, seq, heads, kv_heads, head_dim;
  int64_t packed;  // distance of rows of qkv: (heads + 2 kv_heads) * head_dim
  int64_t merged;  // distance of rows of out: heads * head_dim

  template <typename AttentionOp>
  explicit Layout(const AttentionOp& op)
      : batch(op.batch),
        seq(op.seq),
        heads(op.heads),
        kv_heads(op.kv_heads),
        head_dim(op.head_dim),
        packed((op.heads + 2 * op.kv_heads) * op.head_dim),
        merged(op.heads * op.head_dim) {}

  int64_t tokens() const { return batch * seq; }
  int64_t heads_per_kv_head() const { return heads / kv_heads; }
  int64_t PackedElements() const { return tokens() * packed; }
  int64_t MergedElements() const { return tokens() * merged; }
  int64_t SavedElements(AttentionKind kind) const {
    return batch * heads * seq * (kind == AttentionKind::kEager ? seq : 1);
  }

  // Offsets of the first row of a head's part.
  int64_t Query(int64_t b, int64_t head) const { return b * seq * packed + head * head_dim; }
  int64_t Key(int64_t b, int64_t head) const {
    return b * seq * packed + (heads + head / heads_per_kv_head()) * head_dim;
  }
  int64_t Value(int64_t b, int64_t head) const { return Key(b, head) + kv_heads * head_dim; }
  int64_t Merged(int64_t b, int64_t head) const { return b * seq * merged + head * head_dim; }
};

// Query rows [first, first + rows) of one head, and the keys [0, keys) that the last of them may see.
struct QueryBlock {
  int64_t first = 0, rows = 0, keys = 0;

  static QueryBlock Starting(int64_t first, int64_t seq) {
    const int64_t rows = std::min(kAttentionBlock, seq - first);
    return {first, rows, first + rows};
  }
};

ScoreTile TileOf(const Layout& layout, const QueryBlock& block, int64_t stride) {
  return {block.rows, block.keys, stride, block.first, 1.0f / std::sqrt(static_cast<float>(layout.head_dim))};
}

// The five products of attention; `stride` is that of the tile of scores.
// scores = Q K^T, and likewise the probabilities' gradient = dO V^T.
GemmProblem TimesTransposedKeys(const Layout& l, const QueryBlock& block, int64_t query_stride,
                                int64_t stride) {
  return {block.rows, block.keys, l.head_dim, false, true, query_stride, l.packed, stride};
}
// O = P V, and likewise dQ = dS K.
GemmProblem TimesKeys(const Layout& l, const QueryBlock& block, int64_t stride, int64_t result_stride) {
  return {block.rows, l.head_dim, block.keys, false, false, stride, l.packed, result_stride};
}
// dV = P^T dO, and likewise dK = dS^T Q; summed over query blocks and over the query heads of a key head.
GemmProblem TransposedTimesRows(const Layout& l, const QueryBlock& block, int64_t stride,
                                int64_t query_stride, bool accumulate) {
  GemmProblem problem{block.keys, l.head_dim, block.rows, true, false, stride, query_stride, l.packed};
  problem.accumulate = accumulate;
  return problem;
}

struct ForwardPointers {
  const float* qkv;
  float *out, *saved, *workspace;
};

Status ForwardBlock(GemmEngine& engine, const Layout& l, AttentionKind kind, int64_t b, int64_t head,
                    const QueryBlock& block, const ForwardPointers& p) {
  const bool eager = kind == AttentionKind::kEager;
  const int64_t first_row =
      (b * l.heads + head) * l.seq + block.first;  // of this block among all heads' rows
  float* scores = eager ? p.saved + first_row * l.seq : p.workspace;
  const int64_t stride = eager ? l.seq : block.keys;
  const float* queries = p.qkv + l.Query(b, head) + block.first * l.packed;
  WT_RETURN_IF_ERROR(engine.Run(TimesTransposedKeys(l, block, l.packed, stride), queries,
                                p.qkv + l.Key(b, head), nullptr, scores));
  CausalSoftmax(TileOf(l, block, stride), scores, eager ? nullptr : p.saved + first_row);
  if (eager) {  // the part of the square that no block computes
    for (int64_t row = 0; row < block.rows; ++row) {
      std::fill(scores + row * stride + block.keys, scores + (row + 1) * stride, 0.0f);
    }
  }
  return engine.Run(TimesKeys(l, block, stride, l.merged), scores, p.qkv + l.Value(b, head), nullptr,
                    p.out + l.Merged(b, head) + block.first * l.merged);
}

struct BackwardPointers {
  const float *dout, *qkv, *out, *saved;
  float *dqkv, *workspace;
};

// The probabilities of a block: saved, or recomputed into the workspace.
Result<const float*> Probabilities(GemmEngine& engine, const Layout& l, AttentionKind kind, int64_t b,
                                   int64_t head, const QueryBlock& block, const BackwardPointers& p) {
  const int64_t first_row = (b * l.heads + head) * l.seq + block.first;
  if (kind == AttentionKind::kEager) return p.saved + first_row * l.seq;
  const float* queries = p.qkv + l.Query(b, head) + block.first * l.packed;
  WT_RETURN_IF_ERROR(engine.Run(TimesTransposedKeys(l, block, l.packed, block.keys), queries,
                                p.qkv + l.Key(b, head), nullptr, p.workspace));
  CausalSoftmaxFromLogSumExp(TileOf(l, block, block.keys), p.saved + first_row, p.workspace);
  return p.workspace;
}

// `first_touch`: nothing was written yet to the gradients of this head's keys and values.
Status BackwardBlock(GemmEngine& engine, const Layout& l, AttentionKind kind, int64_t b, int64_t head,
                     const QueryBlock& block, bool first_touch, const BackwardPointers& p) {
  WT_ASSIGN_OR_RETURN(const float* probabilities, Probabilities(engine, l, kind, b, head, block, p));
  const int64_t stride = kind == AttentionKind::kEager ? l.seq : block.keys;
  float* gradient = p.workspace + std::min(kAttentionBlock, l.seq) * l.seq;  // the second tile
  const int64_t query = l.Query(b, head) + block.first * l.packed;
  const int64_t merged = l.Merged(b, head) + block.first * l.merged;
  const int64_t key = l.Key(b, head), value = l.Value(b, head);

  WT_RETURN_IF_ERROR(engine.Run(TransposedTimesRows(l, block, stride, l.merged, !first_touch), probabilities,
                                p.dout + merged, nullptr, p.dqkv + value));
  WT_RETURN_IF_ERROR(engine.Run(TimesTransposedKeys(l, block, l.merged, stride), p.dout + merged,
                                p.qkv + value, nullptr, gradient));
  CausalSoftmaxBackward(TileOf(l, block, stride), probabilities, p.out + merged, p.dout + merged, l.head_dim,
                        l.merged, gradient);
  WT_RETURN_IF_ERROR(
      engine.Run(TimesKeys(l, block, stride, l.packed), gradient, p.qkv + key, nullptr, p.dqkv + query));
  return engine.Run(TransposedTimesRows(l, block, stride, l.packed, !first_touch), gradient, p.qkv + query,
                    nullptr, p.dqkv + key);
}

}  // namespace

Status Run(GemmEngine& engine, const AttentionForward& op, const Operands& operands) {
  const Layout layout(op);
  ForwardPointers p;
  p.qkv = operands.In(0, layout.PackedElements());
  p.out = operands.Out(0, layout.MergedElements());
  p.saved = operands.Out(1, layout.SavedElements(op.kind));
  p.workspace = operands.Out(2, AttentionWorkspaceElements(op.seq, /*backward=*/false));
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t head = 0; head < op.heads; ++head) {
      for (int64_t first = 0; first < op.seq; first += kAttentionBlock) {
        WT_RETURN_IF_ERROR(
            ForwardBlock(engine, layout, op.kind, b, head, QueryBlock::Starting(first, op.seq), p));
      }
    }
  }
  return Ok();
}

// Blocks from the last to the first: the last sees every key, so it may overwrite the keys' and values'
// gradients, and no one has to clear them.
Status Run(GemmEngine& engine, const AttentionBackward& op, const Operands& operands) {
  const Layout layout(op);
  BackwardPointers p;
  p.dout = operands.In(0, layout.MergedElements());
  p.qkv = operands.In(1, layout.PackedElements());
  p.out = operands.In(2, layout.MergedElements());
  p.saved = operands.In(3, layout.SavedElements(op.kind));
  p.dqkv = operands.Out(0, layout.PackedElements());
  p.workspace = operands.Out(1, AttentionWorkspaceElements(op.seq, /*backward=*/true));
  const int64_t last = (op.seq - 1) / kAttentionBlock * kAttentionBlock;
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t head = 0; head < op.heads; ++head) {
      for (int64_t first = last; first >= 0; first -= kAttentionBlock) {
        const bool first_touch = first == last && head % layout.heads_per_kv_head() == 0;
        WT_RETURN_IF_ERROR(BackwardBlock(engine, layout, op.kind, b, head,
                                         QueryBlock::Starting(first, op.seq), first_touch, p));
      }
    }
  }
  return Ok();
}

}  // namespace windtunnel::cpu
