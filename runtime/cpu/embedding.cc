#include "runtime/cpu/embedding.h"

#include <algorithm>

#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {
namespace {

// `positions` may be null. Row t of x is that of token t mod seq within its sequence.
WT_CPU_KERNEL void Gather(const EmbeddingForward& op, const int32_t* ids, const float* table,
                          const float* positions, float* x) {
  const int64_t n = op.hidden;
  for (int64_t t = 0; t < op.tokens; ++t) {
    const float* row = table + ids[t] * n;
    float* out = x + t * n;
    if (positions == nullptr) {
      std::copy(row, row + n, out);
      continue;
    }
    const float* position = positions + t % op.seq * n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = row[i] + position[i];
  }
}

WT_CPU_KERNEL void AddRow(int64_t n, const float* in, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] += in[i];
}

// Position by position, so that each row of the gradient is written while it is in the cache.
void SumOverSequences(const EmbeddingBackward& op, const float* dx, float* dpositions) {
  for (int64_t position = 0; position < std::min(op.seq, op.tokens); ++position) {
    float* out = dpositions + position * op.hidden;
    for (int64_t t = position; t < op.tokens; t += op.seq) {
      const float* row = dx + t * op.hidden;
      if (t == position && !op.accumulate_positions) {
        std::copy(row, row + op.hidden, out);
      } else {
        AddRow(op.hidden, row, out);
      }
    }
  }
}

}  // namespace

Status CheckIndices(const char* what, const int32_t* ids, int64_t count, int64_t bound) {
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= bound) {
      return Failed(
          "{} {} at position {} of the micro-batch, expected 0 to {}: the data do not fit model.vocab", what,
          ids[i], i, bound - 1);
    }
  }
  return Ok();
}

Status Run(const EmbeddingForward& op, const Operands& operands) {
  const int32_t* ids = operands.InIntegers(0, op.tokens);
  WT_RETURN_IF_ERROR(CheckIndices("token id", ids, op.tokens, op.vocab));
  const float* table = operands.In(1, op.vocab * op.hidden);
  const float* positions = op.learned_positions ? operands.In(2, op.seq * op.hidden) : nullptr;
  Gather(op, ids, table, positions, operands.Out(0, op.tokens * op.hidden));
  return Ok();
}

Status Run(const EmbeddingBackward& op, const Operands& operands) {
  const int32_t* ids = operands.InIntegers(0, op.tokens);
  WT_RETURN_IF_ERROR(CheckIndices("token id", ids, op.tokens, op.vocab));
  const float* dx = operands.In(1, op.tokens * op.hidden);
  float* dtable = operands.Out(0, op.vocab * op.hidden);
  if (!op.accumulate_table) std::fill_n(dtable, op.vocab * op.hidden, 0.0f);
  for (int64_t t = 0; t < op.tokens; ++t) AddRow(op.hidden, dx + t * op.hidden, dtable + ids[t] * op.hidden);
  if (op.learned_positions) SumOverSequences(op, dx, operands.Out(1, op.seq * op.hidden));
  return Ok();
}

}  // namespace windtunnel::cpu
