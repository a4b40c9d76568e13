#include "runtime/cpu/elementwise.h"

#include <algorithm>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {
namespace {

// Eight rows at a time: the matrix streams once, in as many streams as hardware prefetchers follow, and the
// sums are loaded and stored once for eight rows.
WT_CPU_KERNEL void AddColumnSums(int64_t rows, int64_t n, const float* in, float* out) {
  constexpr int64_t kRows = 8;
  int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) {
    const float* x = in + row * n;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const float upper = (x[j] + x[j + n]) + (x[j + 2 * n] + x[j + 3 * n]);
      const float lower = (x[j + 4 * n] + x[j + 5 * n]) + (x[j + 6 * n] + x[j + 7 * n]);
      out[j] += upper + lower;
    }
  }
  for (; row < rows; ++row) {
    const float* x = in + row * n;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) out[j] += x[j];
  }
}

WT_CPU_KERNEL void FillWith(int64_t n, float value, float* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = value;
}

}  // namespace

Status Run(const ColumnSum& op, const Operands& operands) {
  float* out = operands.Out(0, op.columns);
  if (!op.accumulate) std::fill_n(out, op.columns, 0.0f);
  AddColumnSums(op.rows, op.columns, operands.In(0, op.rows * op.columns), out);
  return Ok();
}

Status Run(const Copy& op, const Operands& operands) {
  const float scale = static_cast<float>(op.scale);
  WithElement(op.from, [&](auto from) {
    WithElement(op.to, [&](auto to) {
      const auto* in = operands.In<decltype(from)>(0, op.elements);
      auto* out = operands.Out<decltype(to)>(0, op.elements);
      op.accumulate ? ConvertAndAdd(op.elements, scale, in, out) : Convert(op.elements, scale, in, out);
    });
  });
  return Ok();
}

Status Run(const Scale& op, const Operands& operands) {
  float* x = operands.Out(0, op.elements);
  Convert(op.elements, static_cast<float>(op.scale), x, x);
  return Ok();
}

Status Run(const Fill& op, const Operands& operands) {
  if (op.dtype == DType::kInt32) {
    std::fill_n(operands.OutIntegers(0, op.elements), op.elements, static_cast<int32_t>(op.value));
    return Ok();
  }
  float* out = operands.Out(0, op.elements);
  if (op.value == 0.0) {
    std::fill_n(out, op.elements, 0.0f);  // memset
  } else {
    FillWith(op.elements, static_cast<float>(op.value), out);
  }
  return Ok();
}

}  // namespace windtunnel::cpu
