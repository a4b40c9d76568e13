#include "runtime/cpu/head_norm.h"

#include <cmath>
#include <cstring>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {
namespace {

template <typename T>
struct ForwardPointers {
  const T *x, *query_gamma, *key_gamma;
  T* y;
  float* statistics;
};

// `rows` rows of n elements, which share a weight.
template <typename T>
WT_CPU_KERNEL void NormalizeRows(int64_t rows, int64_t n, const T* x, const T* gamma, float epsilon, T* y,
                                 float* statistics) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; ++i) squares += ToFloat(x[i]) * ToFloat(x[i]);
    const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(n) + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = FromFloat<T>(ToFloat(x[i]) * inverse * ToFloat(gamma[i]));
    statistics[row] = inverse;
  }
}

template <typename T>
void Normalize(const HeadNormForward& op, ForwardPointers<T> p) {
  const NormedHeads heads = HeadsOf(op);
  const float epsilon = static_cast<float>(op.epsilon);
  const int64_t keys = heads.queries * heads.query_width, values = keys + heads.keys * heads.key_width;
  for (int64_t token = 0; token < op.tokens; ++token) {
    const T* x = p.x + token * heads.packed();
    T* y = p.y + token * heads.packed();
    float* statistics = p.statistics + token * heads.rows();
    NormalizeRows<T>(heads.queries, heads.query_width, x, p.query_gamma, epsilon, y, statistics);
    NormalizeRows<T>(heads.keys, heads.key_width, x + keys, p.key_gamma, epsilon, y + keys,
                     statistics + heads.queries);
    std::memcpy(y + values, x + values, static_cast<size_t>(heads.values) * sizeof(T));
  }
}

template <typename T>
struct BackwardPointers {
  const T *dy, *x, *query_gamma, *key_gamma;
  const float* statistics;
  T* dx;
  float *dquery_gamma, *dkey_gamma;  // sums; null: frozen
};

// As the backward of RMS norm (runtime/cpu/norm.cc). dx may be dy: each element of dy is read before the
// same element of dx is written.
template <typename T>
WT_CPU_KERNEL void DifferentiateRows(int64_t rows, int64_t n, const T* dy, const T* x, const T* gamma,
                                     const float* statistics, T* dx, float* dgamma) {
  for (int64_t row = 0; row < rows; ++row, x += n, dy += n, dx += n) {
    const float inverse = statistics[row];
    float sum_gh = 0.0f;
    if (dgamma != nullptr) {
#pragma omp simd reduction(+ : sum_gh)
      for (int64_t i = 0; i < n; ++i) {
        const float h = ToFloat(x[i]) * inverse, d = ToFloat(dy[i]);
        dgamma[i] += d * h;
        sum_gh += d * ToFloat(gamma[i]) * h;
      }
    } else {
#pragma omp simd reduction(+ : sum_gh)
      for (int64_t i = 0; i < n; ++i)
        sum_gh += ToFloat(dy[i]) * ToFloat(gamma[i]) * (ToFloat(x[i]) * inverse);
    }
    const float factor = sum_gh / static_cast<float>(n) * inverse;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i)
      dx[i] = FromFloat<T>((ToFloat(dy[i]) * ToFloat(gamma[i]) - ToFloat(x[i]) * factor) * inverse);
  }
}

template <typename T>
void Differentiate(const HeadNormBackward& op, BackwardPointers<T> p) {
  const NormedHeads heads = HeadsOf(op);
  const int64_t keys = heads.queries * heads.query_width, values = keys + heads.keys * heads.key_width;
  for (int64_t token = 0; token < op.tokens; ++token) {
    const int64_t at = token * heads.packed();
    const T *x = p.x + at, *dy = p.dy + at;
    T* dx = p.dx + at;
    const float* statistics = p.statistics + token * heads.rows();
    DifferentiateRows<T>(heads.queries, heads.query_width, dy, x, p.query_gamma, statistics, dx,
                         p.dquery_gamma);
    DifferentiateRows<T>(heads.keys, heads.key_width, dy + keys, x + keys, p.key_gamma,
                         statistics + heads.queries, dx + keys, p.dkey_gamma);
    if (p.dx != p.dy) std::memcpy(dx + values, dy + values, static_cast<size_t>(heads.values) * sizeof(T));
  }
}

template <typename HeadNorm>
int64_t PackedElements(const HeadNorm& op) {
  return op.tokens * HeadsOf(op).packed();
}
template <typename HeadNorm>
int64_t Statistics(const HeadNorm& op) {
  return op.tokens * HeadsOf(op).rows();
}

template <typename T>
void Backward(Scratch& scratch, const HeadNormBackward& op, const Operands& operands) {
  const int64_t query_width = HeadsOf(op).query_width, key_width = HeadsOf(op).key_width;
  BackwardPointers<T> p{.dy = operands.In<T>(0, PackedElements(op)),
                        .x = operands.In<T>(1, PackedElements(op)),
                        .query_gamma = operands.In<T>(2, query_width),
                        .key_gamma = operands.In<T>(3, key_width),
                        .statistics = operands.In(4, Statistics(op)),
                        .dx = operands.Out<T>(0, PackedElements(op)),
                        .dquery_gamma = nullptr,
                        .dkey_gamma = nullptr};
  if (op.frozen) return Differentiate<T>(op, p);
  float* place = scratch.Floats(ElementsBeside<T>(query_width + key_width));
  Sums<T> queries(query_width, operands.Out<T>(1, query_width), place);
  Sums<T> keys(key_width, operands.Out<T>(2, key_width), place + ElementsBeside<T>(query_width));
  queries.Start(op.accumulate);
  keys.Start(op.accumulate);
  p.dquery_gamma = queries.data();
  p.dkey_gamma = keys.data();
  Differentiate<T>(op, p);
  queries.Store();
  keys.Store();
}

}  // namespace

Status Run(const HeadNormForward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    Normalize<T>(op, {.x = operands.In<T>(0, PackedElements(op)),
                      .query_gamma = operands.In<T>(1, HeadsOf(op).query_width),
                      .key_gamma = operands.In<T>(2, HeadsOf(op).key_width),
                      .y = operands.Out<T>(0, PackedElements(op)),
                      .statistics = operands.Out(1, Statistics(op))});
  });
  return Ok();
}

Status Run(Scratch& scratch, const HeadNormBackward& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) { Backward<decltype(element)>(scratch, op, operands); });
  return Ok();
}

}  // namespace windtunnel::cpu
