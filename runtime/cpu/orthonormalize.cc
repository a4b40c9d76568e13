#include "runtime/cpu/orthonormalize.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/orthonormal.h"

namespace windtunnel::cpu {
namespace {

WT_CPU_KERNEL double Dot(int64_t n, const float* x, const float* y) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

WT_CPU_KERNEL void Subtract(int64_t n, float factor, const float* x, float* from) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) from[i] -= factor * x[i];
}

WT_CPU_KERNEL void Multiply(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

float Length(int64_t n, const float* x) { return static_cast<float>(std::sqrt(Dot(n, x, x))); }

// Columns one after another, each `rows` long.
class Columns {
 public:
  Columns(int64_t rows, float* columns) : rows_(rows), columns_(columns) {}

  void Orthonormalize(int64_t column) {
    float* const x = columns_ + column * rows_;
    if (LeavesLength(column)) return;
    for (int64_t row = 0; row < rows_; ++row) x[row] = ReplacementAt(row, column);
    if (!LeavesLength(column)) std::fill_n(x, rows_, 0.0f);
  }

 private:
  // Takes out what lies along earlier columns, and divides by the length that is left. False: the column
  // depends on those, and is not divided.
  bool LeavesLength(int64_t column) {
    float* const x = columns_ + column * rows_;
    const float before = Length(rows_, x);
    // Twice: where the first pass leaves little, its rounding errors lie along the earlier columns, too.
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t other = 0; other < column; ++other) {
        const float* const y = columns_ + other * rows_;
        Subtract(rows_, static_cast<float>(Dot(rows_, x, y)), y, x);
      }
    }
    const float left = Length(rows_, x);
    if (left <= kDependentShare * before && std::isfinite(before)) return false;
    if (left < FLT_MIN) return false;  // its reciprocal may be infinite
    Multiply(rows_, 1 / left, x);
    return true;
  }

  const int64_t rows_;
  float* const columns_;
};

template <typename T>
void Run(Scratch& scratch, int64_t rows, int64_t columns, T* x) {
  float* const turned = scratch.Floats(rows * columns);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      turned[column * rows + row] = ToFloat(x[row * columns + column]);
  Columns orthonormal(rows, turned);
  for (int64_t column = 0; column < columns; ++column) orthonormal.Orthonormalize(column);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      x[row * columns + column] = FromFloat<T>(turned[column * rows + row]);
}

}  // namespace

Status Run(Scratch& scratch, const Orthonormalize& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    Run(scratch, op.rows, op.columns, operands.Out<decltype(element)>(0, op.rows * op.columns));
  });
  return Ok();
}

}  // namespace windtunnel::cpu
