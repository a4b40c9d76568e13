// Sums over rows, one per column, in two steps: blocks write partial sums, and a second kernel adds those in
// order. Runs are therefore bitwise reproducible, unlike with atomic additions.
#pragma once

#include "runtime/cuda/kernels/operands.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/vector.h"

namespace windtunnel::WT_KERNELS {

#if defined(WT_DEVICE)

// out[c] (+)= sum over parts p of partials[p * stride + c]. If `second` is not null, its columns follow the
// first `columns` ones.
template <typename T>
struct AddPartials {
  static constexpr int kThreads = 512, kColumns = kWarp, kRows = kThreads / kColumns;
  int64_t parts, columns, stride;
  bool accumulate;
  const float* partials;
  T *out, *second;

  WT_DEVICE void operator()() const {
    float* place = SharedMemory<float>();  // [kRows, kColumns]
    const int64_t column = static_cast<int64_t>(BlockX()) * kColumns + Lane();
    const int64_t all = second == nullptr ? columns : 2 * columns;
    const int row = Thread() / kColumns;
    float sum = 0.0f;
    if (column < all) {
      for (int64_t part = row; part < parts; part += kRows) sum += partials[part * stride + column];
    }
    place[Thread()] = sum;
    SyncThreads();
    if (row > 0 || column >= all) return;
    for (int i = 1; i < kRows; ++i) sum += place[i * kColumns + Lane()];
    T* const to = column < columns ? out + column : second + (column - columns);
    *to = Rounded<T>(accumulate ? Float(*to) + sum : sum);
  }
};

template <typename T>
void LaunchAddPartials(Queue& queue, int64_t parts, int64_t columns, int64_t stride, bool accumulate,
                       const float* partials, T* out, T* second = nullptr) {
  using Kernel = AddPartials<T>;
  const int64_t all = second == nullptr ? columns : 2 * columns;
  return queue.Launch(Kernel{parts, columns, stride, accumulate, partials, out, second},
                      {CeilDivide(all, Kernel::kColumns)}, Kernel::kThreads * sizeof(float));
}

// *out = scale * sum of n numbers, in double precision; the square root of that if `root`. One block.
template <typename Number>
struct SumNumbers {
  static constexpr int kThreads = 512;
  int64_t n;
  double scale;
  bool root;
  const Number* numbers;
  float* out;

  WT_DEVICE void operator()() const {
    double sum = 0.0;
    for (int64_t i = Thread(); i < n; i += kThreads) sum += static_cast<double>(numbers[i]);
    sum = ReduceBlock<kThreads>(sum, 0.0, SharedMemory<double>(), Sum());
    if (Thread() == 0) *out = static_cast<float>(root ? std::sqrt(scale * sum) : scale * sum);
  }
};

template <typename Number>
void LaunchSumNumbers(Queue& queue, int64_t n, double scale, bool root, const Number* numbers, float* out) {
  using Kernel = SumNumbers<Number>;
  return queue.Launch(Kernel{n, scale, root, numbers, out}, {}, Kernel::kThreads / kWarp * sizeof(double));
}

#endif

}  // namespace windtunnel::WT_KERNELS
