#include "runtime/cpu/norm.h"

#include <algorithm>
#include <cmath>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {
namespace {

// A row stays in the first-level cache between the passes over it, in all kernels below.

template <typename T>
WT_INLINE float Sum(int64_t n, const T* x) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += ToFloat(x[i]);
  return sum;
}

template <typename T>
WT_INLINE float SumOfSquares(int64_t n, const T* x, float center) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += (ToFloat(x[i]) - center) * (ToFloat(x[i]) - center);
  return sum;
}

template <typename T>
struct ForwardPointers {
  const T *x, *branch, *gamma, *beta;
  T *sum, *y;
  float* statistics;
  float epsilon;
};

// The row to normalise: x, or sum = x + branch after rounding, since backward sees only the rounded sum.
template <typename T>
WT_INLINE const T* InputRow(const ForwardPointers<T>& p, int64_t row, int64_t n) {
  if (p.branch == nullptr) return p.x + row * n;
  const T* x = p.x + row * n;
  const T* branch = p.branch + row * n;
  T* sum = p.sum + row * n;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] = FromFloat<T>(ToFloat(x[i]) + ToFloat(branch[i]));
  return sum;
}

// Two passes, mean first: the one-pass formula suffers from cancellation if the mean is large.
template <typename T>
WT_CPU_KERNEL void LayerNormForward(int64_t rows, int64_t n, ForwardPointers<T> p) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* x = InputRow(p, row, n);
    const float mean = Sum(n, x) / static_cast<float>(n);
    const float inverse = 1.0f / std::sqrt(SumOfSquares(n, x, mean) / static_cast<float>(n) + p.epsilon);
    T* y = p.y + row * n;
    if (p.beta != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        y[i] = FromFloat<T>((ToFloat(x[i]) - mean) * inverse * ToFloat(p.gamma[i]) + ToFloat(p.beta[i]));
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        y[i] = FromFloat<T>((ToFloat(x[i]) - mean) * inverse * ToFloat(p.gamma[i]));
      }
    }
    p.statistics[2 * row] = mean;
    p.statistics[2 * row + 1] = inverse;
  }
}

template <typename T>
WT_CPU_KERNEL void RmsNormForward(int64_t rows, int64_t n, ForwardPointers<T> p) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* x = InputRow(p, row, n);
    const float inverse = 1.0f / std::sqrt(SumOfSquares(n, x, 0.0f) / static_cast<float>(n) + p.epsilon);
    T* y = p.y + row * n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      y[i] = FromFloat<T>(ToFloat(x[i]) * inverse * ToFloat(p.gamma[i]));
    }
    p.statistics[row] = inverse;
  }
}

template <typename T>
struct BackwardPointers {
  const T *dy, *x, *gamma, *dresidual;
  const float* statistics;
  T* dx;
  float *dgamma, *dbeta;  // sums; null: frozen (dbeta: or none)
};

// With h = (x - mean) / deviation and g = dy * gamma, both rows:
//   dx = (g - mean(g) - h mean(g h)) / deviation,   dgamma += dy h,   dbeta += dy.
// dx may be dy or dresidual: each element of them is read before the same element of dx is written.
template <typename T>
WT_CPU_KERNEL void LayerNormBackward(int64_t rows, int64_t n, BackwardPointers<T> p) {
  for (int64_t row = 0; row < rows; ++row) {
    const float mean = p.statistics[2 * row], inverse = p.statistics[2 * row + 1];
    const T* x = p.x + row * n;
    const T* dy = p.dy + row * n;
    float sum_g = 0.0f, sum_gh = 0.0f;
    if (float* dgamma = p.dgamma; dgamma != nullptr) {
#pragma omp simd reduction(+ : sum_g, sum_gh)
      for (int64_t i = 0; i < n; ++i) {
        const float h = (ToFloat(x[i]) - mean) * inverse, d = ToFloat(dy[i]), gamma = ToFloat(p.gamma[i]);
        dgamma[i] += d * h;
        sum_g += d * gamma;
        sum_gh += d * gamma * h;
      }
    } else {
#pragma omp simd reduction(+ : sum_g, sum_gh)
      for (int64_t i = 0; i < n; ++i) {
        const float h = (ToFloat(x[i]) - mean) * inverse, g = ToFloat(dy[i]) * ToFloat(p.gamma[i]);
        sum_g += g;
        sum_gh += g * h;
      }
    }
    if (float* dbeta = p.dbeta; dbeta != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) dbeta[i] += ToFloat(dy[i]);
    }
    const float mean_g = sum_g / static_cast<float>(n), mean_gh = sum_gh / static_cast<float>(n);
    T* dx = p.dx + row * n;
    if (p.dresidual != nullptr) {
      const T* dresidual = p.dresidual + row * n;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float h = (ToFloat(x[i]) - mean) * inverse;
        const float g = (ToFloat(dy[i]) * ToFloat(p.gamma[i]) - mean_g - h * mean_gh) * inverse;
        dx[i] = FromFloat<T>(g + ToFloat(dresidual[i]));
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float h = (ToFloat(x[i]) - mean) * inverse;
        dx[i] = FromFloat<T>((ToFloat(dy[i]) * ToFloat(p.gamma[i]) - mean_g - h * mean_gh) * inverse);
      }
    }
  }
}

// As above with h = x / rms and no mean(g).
template <typename T>
WT_CPU_KERNEL void RmsNormBackward(int64_t rows, int64_t n, BackwardPointers<T> p) {
  for (int64_t row = 0; row < rows; ++row) {
    const float inverse = p.statistics[row];
    const T* x = p.x + row * n;
    const T* dy = p.dy + row * n;
    float sum_gh = 0.0f;
    if (float* dgamma = p.dgamma; dgamma != nullptr) {
#pragma omp simd reduction(+ : sum_gh)
      for (int64_t i = 0; i < n; ++i) {
        const float h = ToFloat(x[i]) * inverse, d = ToFloat(dy[i]);
        dgamma[i] += d * h;
        sum_gh += d * ToFloat(p.gamma[i]) * h;
      }
    } else {
#pragma omp simd reduction(+ : sum_gh)
      for (int64_t i = 0; i < n; ++i)
        sum_gh += ToFloat(dy[i]) * ToFloat(p.gamma[i]) * (ToFloat(x[i]) * inverse);
    }
    const float factor = sum_gh / static_cast<float>(n) * inverse;
    T* dx = p.dx + row * n;
    if (p.dresidual != nullptr) {
      const T* dresidual = p.dresidual + row * n;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float g = (ToFloat(dy[i]) * ToFloat(p.gamma[i]) - ToFloat(x[i]) * factor) * inverse;
        dx[i] = FromFloat<T>(g + ToFloat(dresidual[i]));
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        dx[i] = FromFloat<T>((ToFloat(dy[i]) * ToFloat(p.gamma[i]) - ToFloat(x[i]) * factor) * inverse);
      }
    }
  }
}

template <typename T>
void Forward(const NormForward& op, const Operands& operands) {
  const int64_t elements = op.rows * op.columns;
  size_t in = 0, out = 0;
  ForwardPointers<T> p;
  p.x = operands.In<T>(in++, elements);
  p.branch = op.residual ? operands.In<T>(in++, elements) : nullptr;
  p.gamma = operands.In<T>(in++, op.columns);
  p.beta = HasBeta(op.kind, op.bias) ? operands.In<T>(in++, op.columns) : nullptr;
  p.sum = op.residual ? operands.Out<T>(out++, elements) : nullptr;
  p.y = operands.Out<T>(out++, elements);
  p.statistics = operands.Out(out++, StatisticsElements(op.kind, op.rows));
  p.epsilon = static_cast<float>(op.epsilon);
  (op.kind == NormKind::kLayerNorm ? LayerNormForward<T> : RmsNormForward<T>)(op.rows, op.columns, p);
}

template <typename T>
void Backward(Scratch& scratch, const NormBackward& op, const Operands& operands) {
  const int64_t elements = op.rows * op.columns;
  const auto run = [&](BackwardPointers<T> p) {
    (op.kind == NormKind::kLayerNorm ? LayerNormBackward<T> : RmsNormBackward<T>)(op.rows, op.columns, p);
  };
  BackwardPointers<T> p;
  p.dy = operands.In<T>(0, elements);
  p.x = operands.In<T>(1, elements);
  p.gamma = operands.In<T>(2, op.columns);
  p.statistics = operands.In(3, StatisticsElements(op.kind, op.rows));
  p.dresidual = op.residual ? operands.In<T>(4, elements) : nullptr;
  p.dx = operands.Out<T>(0, elements);
  p.dgamma = p.dbeta = nullptr;
  if (op.frozen) return run(p);
  const bool has_beta = HasBeta(op.kind, op.bias);
  float* place = scratch.Floats(ElementsBeside<T>(2 * op.columns));
  Sums<T> dgamma(op.columns, operands.Out<T>(1, op.columns), place);
  Sums<T> dbeta(op.columns, has_beta ? operands.Out<T>(2, op.columns) : nullptr,
                place + ElementsBeside<T>(op.columns));
  dgamma.Start(op.accumulate);
  if (has_beta) dbeta.Start(op.accumulate);
  p.dgamma = dgamma.data();
  p.dbeta = has_beta ? dbeta.data() : nullptr;
  run(p);
  dgamma.Store();
  if (has_beta) dbeta.Store();
}

}  // namespace

Status Run(const NormForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Forward<decltype(element)>(op, operands); });
  return Ok();
}

Status Run(Scratch& scratch, const NormBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Backward<decltype(element)>(scratch, op, operands); });
  return Ok();
}

}  // namespace windtunnel::cpu
