// The places of queries, keys and values, and the keys that a query sees. One description covers attention
// over whole sequences and that of context-parallel ranks: rows lie in chunks of consecutive positions, and
// key k is visible to query q if position(k) <= position(q) and, with a window,
// position(k) > position(q) - window; or, if attention is not causal, always.
#pragma once

#include <cstdint>

#include "runtime/cuda/kernels/kept_elements.h"
#include "runtime/cuda/kernels/simt.h"

namespace windtunnel::WT_KERNELS {

// The chunks of one operand's rows: either one chunk that begins at position 0 (ranks is 0); or, of each of
// several ranks, two of the 2 x ranks chunks of a sequence that is split in zigzag (plan/ops.h, TokenSplit).
struct Chunks {
  int count = 1, length = 0;
  int ranks = 0, first_rank = 0;  // chunks 2 i and 2 i + 1 belong to rank first_rank + i

#if defined(WT_DEVICE)
  WT_DEVICE int Position(int chunk) const {
    if (ranks == 0) return 0;
    const int rank = first_rank + chunk / 2;
    return length * (chunk % 2 == 0 ? rank : 2 * ranks - 1 - rank);
  }
  // One past the last position of the whole sequence.
  WT_DEVICE int End() const { return ranks == 0 ? length : 2 * ranks * length; }
#endif
};

struct AttentionShape {
  int batch = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int seq = 0, key_seq = 0;  // queries and keys of a sequence on one rank
  Chunks queries, keys;
  int window = 0;  // 0: none
  bool causal = true;
  float scale = 1.0f;
  // Strides of the rows of operands and of their gradients.
  int64_t query_stride = 0, key_stride = 0, out_stride = 0;
  KeptProbabilities dropout;

#if defined(WT_DEVICE)
  WT_DEVICE bool Sees(int query_position, int key_position) const {
    return !causal ||
           (key_position <= query_position && (window == 0 || key_position > query_position - window));
  }
  // Whether each of the `queries` queries from `first_query` on sees each of the `keys` keys from `first_key`
  // on.
  WT_DEVICE bool AllSee(int first_query, int queries, int first_key, int keys) const {
    return !causal || (first_key + keys - 1 <= first_query &&
                       (window == 0 || first_key > first_query + queries - 1 - window));
  }
  WT_DEVICE int KeyHead(int head) const { return head / (heads / kv_heads); }
  // The first row of a chunk of one sequence's queries, and of its keys.
  WT_DEVICE int64_t Row(int sequence, int chunk) const { return RowIn(seq, sequence, chunk); }
  WT_DEVICE int64_t KeyRow(int sequence, int chunk) const { return RowIn(key_seq, sequence, chunk); }
  WT_DEVICE int64_t RowIn(int tokens, int sequence, int chunk) const {
    return static_cast<int64_t>(chunk / 2 * batch + sequence) * tokens + chunk % 2 * (tokens / 2);
  }
  // Offset of a chunk of queries in the log-sum-exp and similar tensors of [batch, heads, seq].
  WT_DEVICE int64_t Statistic(int sequence, int head, int chunk) const {
    return static_cast<int64_t>(sequence * heads + head) * seq + chunk % 2 * (seq / 2);
  }
#endif
};

// Elements of T: queries [.., heads, head_dim] with query_stride, keys and values [.., kv_heads, head_dim]
// with key_stride.
// `bias` and `scores` ([heads, seq, key_seq], and [batch, heads, seq, key_seq]; eager only) may be null.
template <typename T>
struct AttentionInputs {
  const T *queries = nullptr, *keys = nullptr, *values = nullptr, *bias = nullptr;
};
template <typename T>
struct AttentionGradients {
  T *queries = nullptr, *keys = nullptr, *values = nullptr, *scores = nullptr;
};

// A run of rows of one chunk that a block works on together.
struct Tile {
  int chunk = 0, first = 0, rows = 0;  // rows: existing rows, at most the tile's size
  int position = 0;                    // of the first row
  int head = 0;                        // SeeingQueries: among the heads that share the key head
};

#if defined(WT_DEVICE)

// The index-th tile of `size` rows over all chunks.
WT_DEVICE Tile TileAt(const Chunks& chunks, int size, int index) {
  const int of_chunk = (chunks.length + size - 1) / size;
  const int chunk = index / of_chunk, first = index % of_chunk * size;
  const int rows = chunks.length - first < size ? chunks.length - first : size;
  return {chunk, first, rows, chunks.Position(chunk) + first};
}

// The tiles of keys that any row of a tile of queries sees, in order: for (…; !tiles.done(); tiles.Next())
// tiles.tile().
class VisibleKeys {
 public:
  WT_DEVICE VisibleKeys(const AttentionShape& shape, int size, const Tile& queries)
      : keys_(shape.keys),
        size_(size),
        last_((shape.causal ? queries.position + queries.rows : shape.keys.End()) - 1) {
    if (shape.window > 0) first_ = queries.position - shape.window + 1;
    Enter(0);
  }
  WT_DEVICE bool done() const { return tile_.chunk >= keys_.count; }
  WT_DEVICE const Tile& tile() const { return tile_; }
  WT_DEVICE void Next() {
    if (tile_.first + size_ < visible_) {
      Place(tile_.first + size_);
    } else {
      Enter(tile_.chunk + 1);
    }
  }

 private:
  // Enters the first visible tile of `chunk` or of a later chunk.
  WT_DEVICE void Enter(int chunk) {
    int first = 0;
    for (; chunk < keys_.count; ++chunk) {
      const int position = keys_.Position(chunk), seen = last_ - position + 1;
      visible_ = seen < keys_.length ? seen : keys_.length;
      first = first_ > position ? first_ - position : 0;
      if (visible_ > first) break;
    }
    tile_.chunk = chunk;
    if (chunk < keys_.count) Place(first / size_ * size_);
  }
  WT_DEVICE void Place(int first) {
    const int left = keys_.length - first;
    tile_.first = first;
    tile_.rows = left < size_ ? left : size_;
    tile_.position = keys_.Position(tile_.chunk) + first;
  }

  const Chunks& keys_;
  int size_;
  int last_;  // the position of the last key that any query sees
  int visible_ = 0;
  int first_ = 0;  // the position of the first key that any query sees
  Tile tile_;
};

// The tiles of queries that see any row of a tile of keys: for each of the heads that share the key head, in
// turn.
class SeeingQueries {
 public:
  WT_DEVICE SeeingQueries(const AttentionShape& shape, int size, const Tile& keys)
      : queries_(shape.queries),
        size_(size),
        key_(shape.causal ? keys.position : 0),
        heads_(shape.heads / shape.kv_heads) {
    if (shape.window > 0) end_ = keys.position + keys.rows - 1 + shape.window;
    Enter(0);
    if (tile_.chunk >= queries_.count) tile_.head = heads_;
  }
  WT_DEVICE bool done() const { return tile_.head >= heads_; }
  WT_DEVICE const Tile& tile() const { return tile_; }
  WT_DEVICE void Next() {
    const int next = tile_.first + size_;
    if (next < queries_.length && IsBeforeEnd(queries_.Position(tile_.chunk) + next)) {
      Place(next);
      return;
    }
    Enter(tile_.chunk + 1);
    if (tile_.chunk < queries_.count) return;
    ++tile_.head;
    Enter(0);
  }

 private:
  WT_DEVICE void Enter(int chunk) {
    for (; chunk < queries_.count; ++chunk) {
      const int position = queries_.Position(chunk);
      if (position + queries_.length > key_ && IsBeforeEnd(position)) break;
    }
    tile_.chunk = chunk;
    if (chunk >= queries_.count) return;
    const int before = key_ - queries_.Position(chunk);  // queries of the chunk that see none of the keys
    Place(before > 0 ? before / size_ * size_ : 0);
  }
  WT_DEVICE void Place(int first) {
    const int left = queries_.length - first;
    tile_.first = first;
    tile_.rows = left < size_ ? left : size_;
    tile_.position = queries_.Position(tile_.chunk) + first;
  }

  WT_DEVICE bool IsBeforeEnd(int position) const { return end_ == 0 || position < end_; }

  const Chunks& queries_;
  int size_;
  int key_;  // the position of the first key; 0: all queries see it
  int heads_;
  int end_ = 0;  // one past the last position that sees any of the keys; 0: no limit
  Tile tile_;
};

#endif

}  // namespace windtunnel::WT_KERNELS
