// Attention's heads within the packed operands, and their rows in fp32 whatever the operands' type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/scratch.h"
#include "scenarios/operator_kinds.h"

namespace windtunnel::cpu {

// The places of one head's parts within the packed projections, and the strides of GEMMs with them.
struct AttentionLayout {
  int64_t batch, seq, heads, kv_heads, head_dim, value_dim;
  int64_t packed;      // stride of qkv's rows: (heads + kv_heads) * head_dim + kv_heads * value_dim
  int64_t merged;      // stride of out's rows: heads * value_dim
  int64_t window = 0;  // most keys that a query sees; 0: no limit
  bool causal = true;

  template <typename AttentionOp>
  explicit AttentionLayout(const AttentionOp& op)
      : batch(op.batch),
        seq(op.seq),
        heads(op.heads),
        kv_heads(op.kv_heads),
        head_dim(op.head_dim),
        value_dim(op.values()),
        packed((heads + kv_heads) * head_dim + kv_heads * value_dim),
        merged(heads * value_dim) {
    if constexpr (requires { op.window; }) window = op.window;
    if constexpr (requires { op.causal; }) causal = op.causal;
  }

  int64_t tokens() const { return batch * seq; }
  int64_t heads_per_kv_head() const { return heads / kv_heads; }
  int64_t HeadElements() const { return seq * std::max(head_dim, value_dim); }
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
  int64_t Value(int64_t b, int64_t head) const {
    return b * seq * packed + (heads + kv_heads) * head_dim + head / heads_per_kv_head() * value_dim;
  }
  int64_t Merged(int64_t b, int64_t head) const { return b * seq * merged + head * value_dim; }
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
