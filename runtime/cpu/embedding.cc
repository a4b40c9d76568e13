#include "runtime/cpu/embedding.h"

#include <algorithm>
#include <numeric>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {
namespace {

// The rows of the vocabulary in a rank's table.
struct Rows {
  int64_t first, count, all;

  bool Hold(int64_t id) const { return id >= first && id < first + count; }
};

template <typename Embedding>
Rows RowsOf(const Embedding& op, const TensorPosition& tensor) {
  if (!op.vocab_parallel) return {0, op.vocab, op.vocab};
  return {tensor.rank * op.vocab, op.vocab, tensor.ranks * op.vocab};
}

// `positions` may be null. Row t of x is token t mod seq of its sequence.
template <typename T>
WT_CPU_KERNEL void Gather(const EmbeddingForward& op, Rows rows, int context_rank, const int32_t* ids,
                          const T* table, const T* positions, T* x) {
  const int64_t n = op.hidden;
  for (int64_t t = 0; t < op.tokens; ++t) {
    T* out = x + t * n;
    if (!rows.Hold(ids[t])) {
      std::fill_n(out, n, T());
      continue;
    }
    const T* row = table + (ids[t] - rows.first) * n;
    if (positions == nullptr) {
      std::copy(row, row + n, out);
      continue;
    }
    const T* position = positions + WholePosition(op.context, context_rank, op.seq, t % op.seq) * n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = FromFloat<T>(ToFloat(row[i]) + ToFloat(position[i]));
  }
}

template <typename T>
WT_CPU_KERNEL void AddRow(int64_t n, const T* in, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] += ToFloat(in[i]);
}

// Positions of other context-parallel ranks' tokens get no gradient. Works position by position, so that each
// row of the gradient is written while it is in the cache.
template <typename T>
void SumOverSequences(Scratch& scratch, const EmbeddingBackward& op, int context_rank, const T* dx,
                      T* dpositions) {
  if (op.context.ranks > 1 && !op.accumulate_positions)
    std::fill_n(dpositions, op.seq * op.context.ranks * op.hidden, T());
  float* place = scratch.Floats(ElementsBeside<T>(op.hidden));
  for (int64_t position = 0; position < std::min(op.seq, op.tokens); ++position) {
    Sums<T> sums(op.hidden,
                 dpositions + WholePosition(op.context, context_rank, op.seq, position) * op.hidden, place);
    if (op.accumulate_positions) sums.Load();
    for (int64_t t = position; t < op.tokens; t += op.seq) {
      const T* row = dx + t * op.hidden;
      if (t == position && !op.accumulate_positions) {
        Convert(op.hidden, 1.0f, row, sums.data());
      } else {
        AddRow(op.hidden, row, sums.data());
      }
    }
    sums.Store();
  }
}

// Adds in the order of tokens: the gradients are read once, and the sums are already in their place.
void SumUses(Scratch&, const EmbeddingBackward& op, Rows rows, const int32_t* ids, const float* dx,
             float* dtable) {
  if (!op.accumulate_table) std::fill_n(dtable, op.vocab * op.hidden, 0.0f);
  for (int64_t t = 0; t < op.tokens; ++t) {
    if (rows.Hold(ids[t])) AddRow(op.hidden, dx + t * op.hidden, dtable + (ids[t] - rows.first) * op.hidden);
  }
}

// Adds in the order of ids, so that only one row's sum at a time is in fp32; within an id in the order of
// tokens.
template <typename T>
void SumUses(Scratch& scratch, const EmbeddingBackward& op, Rows rows, const int32_t* ids, const T* dx,
             T* dtable) {
  if (!op.accumulate_table) std::fill_n(dtable, op.vocab * op.hidden, T());
  float* place = scratch.Floats(op.hidden);
  int32_t* uses = scratch.Integers(op.tokens);
  std::iota(uses, uses + op.tokens, 0);
  std::sort(uses, uses + op.tokens,
            [ids](int32_t a, int32_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });
  for (int64_t i = 0; i < op.tokens;) {
    const int32_t id = ids[uses[i]];
    if (!rows.Hold(id)) {
      ++i;
      continue;
    }
    Sums<T> sums(op.hidden, dtable + (id - rows.first) * op.hidden, place);
    sums.Start(op.accumulate_table);
    for (; i < op.tokens && ids[uses[i]] == id; ++i) AddRow(op.hidden, dx + uses[i] * op.hidden, sums.data());
    sums.Store();
  }
}

}  // namespace

Status CheckIndices(const char* what, const int32_t* ids, int64_t count, int64_t bound, bool ends) {
  for (int64_t i = 0; i < count; ++i) {
    if (ends && ids[i] == kNoToken) continue;
    if (ids[i] < 0 || ids[i] >= bound) {
      return Failed(
          "{} {} at position {} of the micro-batch, expected 0 to {}: the data do not fit model.vocab", what,
          ids[i], i, bound - 1);
    }
  }
  return Ok();
}

Status Run(const EmbeddingForward& op, const KernelContext& context, const Operands& operands) {
  const Rows rows = RowsOf(op, context.tensor);
  const int32_t* ids = operands.InIntegers(0, op.tokens);
  WT_RETURN_IF_ERROR(CheckIndices("token id", ids, op.tokens, rows.all, op.ends));
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* table = operands.In<T>(1, op.vocab * op.hidden);
    const T* positions =
        op.learned_positions ? operands.In<T>(2, op.seq * op.context.ranks * op.hidden) : nullptr;
    Gather(op, rows, context.context.rank, ids, table, positions, operands.Out<T>(0, op.tokens * op.hidden));
  });
  return Ok();
}

Status Run(Scratch& scratch, const EmbeddingBackward& op, const KernelContext& context,
           const Operands& operands) {
  const Rows rows = RowsOf(op, context.tensor);
  const int32_t* ids = operands.InIntegers(0, op.tokens);
  WT_RETURN_IF_ERROR(CheckIndices("token id", ids, op.tokens, rows.all, op.ends));
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* dx = operands.In<T>(1, op.tokens * op.hidden);
    SumUses(scratch, op, rows, ids, dx, operands.Out<T>(0, op.vocab * op.hidden));
    if (op.learned_positions)
      SumOverSequences(scratch, op, context.context.rank, dx,
                       operands.Out<T>(1, op.seq * op.context.ranks * op.hidden));
  });
  return Ok();
}

}  // namespace windtunnel::cpu
