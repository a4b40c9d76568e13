#include "runtime/cpu/latent_heads.h"

#include <algorithm>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/rotate_pairs.h"

namespace windtunnel::cpu {
namespace {

// One token's rows in the packed projections, and in the tensors that they are assembled from.
template <typename Packed, typename Part>
struct LatentRows {
  Packed *queries, *keys, *values;  // in `packed`, of all heads
  Part *q, *kv, *shared_key;
};

template <typename Packed, typename Part>
LatentRows<Packed, Part> RowsAt(const JoinLatentHeads& op, int64_t token, Packed* packed, Part* q, Part* kv,
                                Part* shared_key) {
  Packed* queries = packed + token * op.packed_columns();
  return {queries,
          queries + op.query_columns(),
          queries + 2 * op.query_columns(),
          q + token * op.query_columns(),
          kv + token * op.kv_columns(),
          shared_key + token * op.rope_dim};
}

template <typename T>
WT_CPU_KERNEL void Join(const JoinLatentHeads& op, const float* turns, const LatentRows<T, const T>& rows) {
  const int64_t plain = op.head_dim - op.rope_dim, half = op.rope_dim / 2;
  for (int64_t head = 0; head < op.heads; ++head) {
    const T* q = rows.q + head * op.head_dim;
    const T* kv = rows.kv + head * (plain + op.value_dim);
    T* query = rows.queries + head * op.head_dim;
    T* key = rows.keys + head * op.head_dim;
    std::copy_n(q, plain, query);
    RotatePairs(half, turns, 1.0f, q + plain, query + plain);
    std::copy_n(kv, plain, key);
    RotatePairs(half, turns, 1.0f, rows.shared_key, key + plain);
    std::copy_n(kv + plain, op.value_dim, rows.values + head * op.value_dim);
  }
}

// `sum` has room for rope_dim numbers.
template <typename T>
WT_CPU_KERNEL void TakeApart(const JoinLatentHeads& op, const float* turns,
                             const LatentRows<const T, T>& rows, float* sum) {
  const int64_t plain = op.head_dim - op.rope_dim, half = op.rope_dim / 2;
  std::fill_n(sum, op.rope_dim, 0.0f);
  for (int64_t head = 0; head < op.heads; ++head) {
    const T* query = rows.queries + head * op.head_dim;
    const T* key = rows.keys + head * op.head_dim;
    T* q = rows.q + head * op.head_dim;
    T* kv = rows.kv + head * (plain + op.value_dim);
    std::copy_n(query, plain, q);
    RotatePairs(half, turns, -1.0f, query + plain, q + plain);
    std::copy_n(key, plain, kv);
    std::copy_n(rows.values + head * op.value_dim, op.value_dim, kv + plain);
#pragma omp simd
    for (int64_t i = 0; i < op.rope_dim; ++i) sum[i] += ToFloat(key[plain + i]);
  }
  RotatePairs(half, turns, -1.0f, sum, rows.shared_key);
}

}  // namespace

Status Run(RopeTables& tables, Scratch& scratch, const JoinLatentHeads& op, const ContextPosition& context,
           const Operands& operands) {
  if (op.rope_dim % 2 != 0)
    return Unsupported("rotary positions turn pairs: rope_dim is {}, expected an even number", op.rope_dim);
  const float* table = tables.Of(op.seq * op.context.ranks, op.rope_dim, op.theta).data();
  const auto turns = [&](int64_t token) {
    return table + WholePosition(op.context, context.rank, op.seq, token % op.seq) * op.rope_dim;
  };
  const int64_t tokens = op.tokens(), packed_elements = tokens * op.packed_columns();
  const int64_t q_elements = tokens * op.query_columns(), kv_elements = tokens * op.kv_columns();
  const int64_t key_elements = tokens * op.rope_dim;
  float* sum = scratch.Floats(op.rope_dim);
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    if (op.backward) {
      const T* packed = operands.In<T>(0, packed_elements);
      T *q = operands.Out<T>(0, q_elements), *kv = operands.Out<T>(1, kv_elements);
      T* key = operands.Out<T>(2, key_elements);
      for (int64_t token = 0; token < tokens; ++token)
        TakeApart(op, turns(token), RowsAt(op, token, packed, q, kv, key), sum);
    } else {
      const T *q = operands.In<T>(0, q_elements), *kv = operands.In<T>(1, kv_elements);
      const T* key = operands.In<T>(2, key_elements);
      T* packed = operands.Out<T>(0, packed_elements);
      for (int64_t token = 0; token < tokens; ++token)
        Join(op, turns(token), RowsAt(op, token, packed, q, kv, key));
    }
  });
  return Ok();
}

}  // namespace windtunnel::cpu
