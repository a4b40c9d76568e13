#include "runtime/cpu/norm.h"

#include <algorithm>
#include <cmath>

#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {
namespace {

constexpr float kEpsilon = 1e-5f;

// A row stays in the first-level cache between the passes over it.

WT_INLINE float Sum(int64_t n, const float* x) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

WT_INLINE float SumOfSquares(int64_t n, const float* x, float center) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += (x[i] - center) * (x[i] - center);
  return sum;
}

struct ForwardPointers {
  const float *x, *branch, *gamma, *beta;
  float *sum, *y, *statistics;
};

// The row to normalise: x, or sum = x + branch.
WT_INLINE const float* InputRow(const ForwardPointers& p, int64_t row, int64_t n) {
  if (p.branch == nullptr) return p.x + row * n;
  const float* x = p.x + row * n;
  const float* branch = p.branch + row * n;
  float* sum = p.sum + row * n;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] = x[i] + branch[i];
  return sum;
}

// Two passes, mean first: the one-pass formula cancels where the mean is large.
WT_CPU_KERNEL void LayerNormForward(int64_t rows, int64_t n, ForwardPointers p) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = InputRow(p, row, n);
    const float mean = Sum(n, x) / static_cast<float>(n);
    const float inverse = 1.0f / std::sqrt(SumOfSquares(n, x, mean) / static_cast<float>(n) + kEpsilon);
    float* y = p.y + row * n;
    if (p.beta != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * p.gamma[i] + p.beta[i];
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * p.gamma[i];
    }
    p.statistics[2 * row] = mean;
    p.statistics[2 * row + 1] = inverse;
  }
}

WT_CPU_KERNEL void RmsNormForward(int64_t rows, int64_t n, ForwardPointers p) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = InputRow(p, row, n);
    const float inverse = 1.0f / std::sqrt(SumOfSquares(n, x, 0.0f) / static_cast<float>(n) + kEpsilon);
    float* y = p.y + row * n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * inverse * p.gamma[i];
    p.statistics[row] = inverse;
  }
}

struct BackwardPointers {
  const float *dy, *x, *gamma, *statistics, *dresidual;
  float *dx, *dgamma, *dbeta;
};

// With h = (x - mean) / deviation and g = dy * gamma, both rows:
//   dx = (g - mean(g) - h mean(g h)) / deviation,   dgamma += dy h,   dbeta += dy.
// dx may be dy or dresidual: each element of them is read before the same element of dx is written.
WT_CPU_KERNEL void LayerNormBackward(int64_t rows, int64_t n, BackwardPointers p) {
  for (int64_t row = 0; row < rows; ++row) {
    const float mean = p.statistics[2 * row], inverse = p.statistics[2 * row + 1];
    const float* x = p.x + row * n;
    const float* dy = p.dy + row * n;
    float sum_g = 0.0f, sum_gh = 0.0f;
    float* dgamma = p.dgamma;
#pragma omp simd reduction(+ : sum_g, sum_gh)
    for (int64_t i = 0; i < n; ++i) {
      const float h = (x[i] - mean) * inverse;
      dgamma[i] += dy[i] * h;
      sum_g += dy[i] * p.gamma[i];
      sum_gh += dy[i] * p.gamma[i] * h;
    }
    if (float* dbeta = p.dbeta; dbeta != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) dbeta[i] += dy[i];
    }
    const float mean_g = sum_g / static_cast<float>(n), mean_gh = sum_gh / static_cast<float>(n);
    float* dx = p.dx + row * n;
    if (p.dresidual != nullptr) {
      const float* dresidual = p.dresidual + row * n;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float h = (x[i] - mean) * inverse;
        dx[i] = (dy[i] * p.gamma[i] - mean_g - h * mean_gh) * inverse + dresidual[i];
      }
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float h = (x[i] - mean) * inverse;
        dx[i] = (dy[i] * p.gamma[i] - mean_g - h * mean_gh) * inverse;
      }
    }
  }
}

// As above with h = x / rms and no mean(g).
WT_CPU_KERNEL void RmsNormBackward(int64_t rows, int64_t n, BackwardPointers p) {
  for (int64_t row = 0; row < rows; ++row) {
    const float inverse = p.statistics[row];
    const float* x = p.x + row * n;
    const float* dy = p.dy + row * n;
    float sum_gh = 0.0f;
    float* dgamma = p.dgamma;
#pragma omp simd reduction(+ : sum_gh)
    for (int64_t i = 0; i < n; ++i) {
      const float h = x[i] * inverse;
      dgamma[i] += dy[i] * h;
      sum_gh += dy[i] * p.gamma[i] * h;
    }
    const float factor = sum_gh / static_cast<float>(n) * inverse;
    float* dx = p.dx + row * n;
    if (p.dresidual != nullptr) {
      const float* dresidual = p.dresidual + row * n;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) dx[i] = (dy[i] * p.gamma[i] - x[i] * factor) * inverse + dresidual[i];
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) dx[i] = (dy[i] * p.gamma[i] - x[i] * factor) * inverse;
    }
  }
}

// RMS norm has no beta.
bool HasBeta(NormKind kind, bool bias) { return kind == NormKind::kLayerNorm && bias; }

int64_t StatisticsElements(NormKind kind, int64_t rows) {
  return kind == NormKind::kLayerNorm ? 2 * rows : rows;
}

}  // namespace

Status Run(const NormForward& op, const Operands& operands) {
  const int64_t elements = op.rows * op.columns;
  size_t in = 0, out = 0;
  ForwardPointers p;
  p.x = operands.In(in++, elements);
  p.branch = op.residual ? operands.In(in++, elements) : nullptr;
  p.gamma = operands.In(in++, op.columns);
  p.beta = HasBeta(op.kind, op.bias) ? operands.In(in++, op.columns) : nullptr;
  p.sum = op.residual ? operands.Out(out++, elements) : nullptr;
  p.y = operands.Out(out++, elements);
  p.statistics = operands.Out(out++, StatisticsElements(op.kind, op.rows));
  (op.kind == NormKind::kLayerNorm ? LayerNormForward : RmsNormForward)(op.rows, op.columns, p);
  return Ok();
}

Status Run(const NormBackward& op, const Operands& operands) {
  const int64_t elements = op.rows * op.columns;
  BackwardPointers p;
  p.dy = operands.In(0, elements);
  p.x = operands.In(1, elements);
  p.gamma = operands.In(2, op.columns);
  p.statistics = operands.In(3, StatisticsElements(op.kind, op.rows));
  p.dresidual = op.residual ? operands.In(4, elements) : nullptr;
  p.dx = operands.Out(0, elements);
  p.dgamma = operands.Out(1, op.columns);
  p.dbeta = HasBeta(op.kind, op.bias) ? operands.Out(2, op.columns) : nullptr;
  if (!op.accumulate) {
    std::fill_n(p.dgamma, op.columns, 0.0f);
    if (p.dbeta != nullptr) std::fill_n(p.dbeta, op.columns, 0.0f);
  }
  (op.kind == NormKind::kLayerNorm ? LayerNormBackward : RmsNormBackward)(op.rows, op.columns, p);
  return Ok();
}

}  // namespace windtunnel::cpu
