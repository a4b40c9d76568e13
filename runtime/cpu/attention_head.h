// Attention's heads within the packed operands, and their rows in fp32 whatever the operands' type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/scratch.h"
#include "scenarios/operator_kinds.h"

namespace windtunnel::cpu {

// The places of one head's parts within an operator's operands, and the strides of GEMMs with them. Queries,
// keys and values lie side by side in packed projections; in cross-attention keys and values lie in an
// operand of their own.
struct AttentionLayout {
  int64_t batch, seq, keys, heads, kv_heads, head_dim, value_dim;
  bool is_cross = false;
  int64_t query_stride, key_stride;  // of rows
  int64_t merged;                    // stride of out's rows: heads * value_dim
  int64_t window;                    // most keys that a query sees; 0: no limit
  bool causal;

  template <typename AttentionOp>
  explicit AttentionLayout(const AttentionOp& op)
      : batch(op.batch),
        seq(op.seq),
        keys(op.keys()),
        heads(op.heads),
        kv_heads(op.kv_heads),
        head_dim(op.head_dim),
        value_dim(op.values()),
        is_cross(op.key_seq > 0),
        query_stride(heads * head_dim + (is_cross ? 0 : key_columns())),
        key_stride(is_cross ? key_columns() : query_stride),
        merged(heads * value_dim),
        window(op.window),
        causal(op.causal && !is_cross) {}

  int64_t key_columns() const { return kv_heads * (head_dim + value_dim); }
  int64_t tokens() const { return batch * seq; }
  int64_t heads_per_kv_head() const { return heads / kv_heads; }
  int64_t Square() const { return seq * keys; }  // the scores of one head of a sequence
  // Of one head, of queries or keys.
  int64_t HeadElements() const { return std::max(seq, keys) * std::max(head_dim, value_dim); }
  int64_t QueryElements() const { return tokens() * query_stride; }
  int64_t KeyElements() const { return batch * keys * key_stride; }  // of cross-attention's own operand
  int64_t MergedElements() const { return tokens() * merged; }
  int64_t SavedElements(AttentionKind kind) const {
    return batch * heads * seq * (kind == AttentionKind::kEager ? keys : 1);
  }

  // Offsets of the first row of a head's part, in the operand that it lies in.
  int64_t Query(int64_t b, int64_t head) const { return b * seq * query_stride + head * head_dim; }
  int64_t Key(int64_t b, int64_t head) const { return FirstKey(b) + head / heads_per_kv_head() * head_dim; }
  int64_t Value(int64_t b, int64_t head) const {
    return FirstKey(b) + kv_heads * head_dim + head / heads_per_kv_head() * value_dim;
  }
  int64_t Merged(int64_t b, int64_t head) const { return b * seq * merged + head * value_dim; }

 private:
  int64_t FirstKey(int64_t b) const { return b * keys * key_stride + (is_cross ? 0 : heads * head_dim); }
};

// fp32 rows of one head: in place in an fp32 operand, or in the scratch for a 16-bit operand.
template <typename Float>
struct RowsOf {
  Float* data;
  int64_t stride, columns;

  Float* At(int64_t row) const { return data + row * stride; }
};
using Rows = RowsOf<const float>;
using MutableRows = RowsOf<float>;

// `count` rows of `columns` elements in fp32: `rows` themselves, or converted into `place`.
template <typename T>
Rows FetchRows(int64_t count, int64_t columns, const T* rows, int64_t stride, float* place) {
  if constexpr (std::is_same_v<T, float>) {
    return {rows, stride, columns};
  } else {
    ConvertRows(count, columns, rows, stride, place, columns);
    return {place, columns, columns};
  }
}

template <typename T>
MutableRows PlaceOf(int64_t columns, T* rows, int64_t stride, float* place) {
  if constexpr (std::is_same_v<T, float>) {
    return {rows, stride, columns};
  } else {
    return {place, columns, columns};
  }
}

// Rounds the contents of PlaceOf's rows into the operand, if that is 16-bit.
template <typename T>
void StoreRows(int64_t count, const MutableRows& from, T* rows, int64_t stride) {
  if constexpr (!std::is_same_v<T, float>)
    ConvertRows(count, from.columns, from.data, from.stride, rows, stride);
}

// The scratch divided into parts of one head's rows each; empty for fp32 operands.
template <typename T>
class Places {
 public:
  Places(Scratch& scratch, const AttentionLayout& l, int64_t count)
      : size_(ElementsBeside<T>(l.HeadElements())), first_(scratch.Floats(count * size_)) {}
  float* At(int64_t index) const { return first_ + index * size_; }

 private:
  int64_t size_;
  float* first_;
};

}  // namespace windtunnel::cpu
