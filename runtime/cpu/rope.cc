#include "runtime/cpu/rope.h"

#include <cmath>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/rotate_pairs.h"

namespace windtunnel::cpu {
namespace {

// `sign` is 1 forward and -1 backward.
template <typename T>
WT_CPU_KERNEL void Rotate(const Rope& op, int context_rank, const float* table, float sign, T* qkv) {
  const int64_t half = op.rotated_columns() / 2;
  const int64_t packed = (op.heads + 2 * op.kv_heads) * op.head_dim;
  for (int64_t token = 0; token < op.batch * op.seq; ++token) {
    const float* turns = table + WholePosition(op.context, context_rank, op.seq, token % op.seq) * 2 * half;
    for (int64_t head = 0; head < op.heads + op.kv_heads; ++head) {
      T* columns = qkv + token * packed + head * op.head_dim;
      RotatePairs(half, turns, sign, columns, columns);
    }
  }
}

}  // namespace

const std::vector<float>& RopeTables::Of(int64_t seq, int64_t rotated, double base) {
  std::vector<float>& table = tables_[{seq, rotated, base}];
  if (!table.empty()) return table;
  table.resize(static_cast<size_t>(seq * rotated));
  const int64_t half = rotated / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotated));
    for (int64_t position = 0; position < seq; ++position) {
      float* row = table.data() + position * rotated;
      row[i] = static_cast<float>(std::cos(static_cast<double>(position) * frequency));
      row[i + half] = static_cast<float>(std::sin(static_cast<double>(position) * frequency));
    }
  }
  return table;
}

Status Run(RopeTables& tables, const Rope& op, const ContextPosition& context, const Operands& operands) {
  if (op.rotated_columns() % 2 != 0) {
    return Unsupported(
        "rotary positions turn pairs: {} columns of a head are rotated, expected an even number",
        op.rotated_columns());
  }
  const int64_t elements = op.batch * op.seq * (op.heads + 2 * op.kv_heads) * op.head_dim;
  const float* table = tables.Of(op.seq * op.context.ranks, op.rotated_columns(), op.theta).data();
  WithElement(op.dtype, [&](auto element) {
    Rotate(op, context.rank, table, op.backward ? -1.0f : 1.0f, operands.Out<decltype(element)>(0, elements));
  });
  return Ok();
}

}  // namespace windtunnel::cpu
