#include "runtime/cuda/kernels/orthonormalize.h"

#include <cfloat>
#include <cmath>

#include "runtime/cuda/kernels/reduce.h"
#include "runtime/orthonormal.h"

namespace windtunnel::WT_KERNELS {
namespace {

// Each thread has rows of its own, of every column, so that only sums are exchanged.
template <typename T>
struct OrthonormalizeKernel {
  static constexpr int kThreads = 512;
  int64_t rows, columns;
  T* x;
  float* turned;  // [columns, rows]

  WT_DEVICE void operator()() const {
    for (int64_t row = Thread(); row < rows; row += kThreads)
      for (int64_t column = 0; column < columns; ++column)
        turned[column * rows + row] = Float(x[row * columns + column]);
    for (int64_t column = 0; column < columns; ++column) {
      if (LeavesLength(column)) continue;
      for (int64_t row = Thread(); row < rows; row += kThreads)
        turned[column * rows + row] = ReplacementAt(row, column);
      if (!LeavesLength(column)) Multiply(column, 0.0f);
    }
    for (int64_t row = Thread(); row < rows; row += kThreads)
      for (int64_t column = 0; column < columns; ++column)
        x[row * columns + column] = Rounded<T>(turned[column * rows + row]);
  }

 private:
  WT_DEVICE double Dot(int64_t column, int64_t other) const {
    const float *const a = turned + column * rows, *const b = turned + other * rows;
    double sum = 0.0;
    for (int64_t row = Thread(); row < rows; row += kThreads)
      sum += static_cast<double>(a[row]) * static_cast<double>(b[row]);
    return ReduceBlock<kThreads>(sum, 0.0, SharedMemory<double>(), Sum());
  }
  WT_DEVICE void Multiply(int64_t column, float factor) const {
    for (int64_t row = Thread(); row < rows; row += kThreads) turned[column * rows + row] *= factor;
  }
  // As the cpu device's: takes out what lies along earlier columns, twice, and divides by the length that is
  // left. False: the column depends on those, and is not divided.
  WT_DEVICE bool LeavesLength(int64_t column) const {
    const float before = static_cast<float>(sqrt(Dot(column, column)));
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t other = 0; other < column; ++other) {
        const float factor = static_cast<float>(Dot(column, other));
        for (int64_t row = Thread(); row < rows; row += kThreads)
          turned[column * rows + row] -= factor * turned[other * rows + row];
      }
    }
    const float left = static_cast<float>(sqrt(Dot(column, column)));
    if (left <= kDependentShare * before && before <= FLT_MAX) return false;
    if (left < FLT_MIN) return false;  // its reciprocal may be infinite
    Multiply(column, 1.0f / left);
    return true;
  }
};

template <typename T>
void Launch(Queue& queue, const Orthonormalize& op, const Operands& operands) {
  const int64_t elements = op.rows * op.columns;
  const OrthonormalizeKernel<T> kernel{op.rows, op.columns, operands.Out<T>(0, elements),
                                       queue.Scratch<float>(elements)};
  queue.Launch(kernel, {1}, OrthonormalizeKernel<T>::kThreads / kWarp * sizeof(double));
}

}  // namespace

int64_t ScratchBytes(const Orthonormalize& op, const Traits&) {
  return op.rows * op.columns * static_cast<int64_t>(sizeof(float));
}

void Run(Queue& queue, const Orthonormalize& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Launch<decltype(element)>(queue, op, operands); });
}

}  // namespace windtunnel::WT_KERNELS
