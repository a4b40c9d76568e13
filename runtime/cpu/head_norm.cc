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

template <typename T>
WT_CPU_KERNEL void Normalize(const HeadNormForward& op, ForwardPointers<T> p) {
  const int64_t n = op.head_dim, normalized = op.heads + op.kv_heads, packed = (normalized + op.kv_heads) * n;
  const float epsilon = static_cast<float>(op.epsilon);
  for (int64_t token = 0; token < op.tokens; ++token) {
    for (int64_t head = 0; head < normalized; ++head) {
      const T* x = p.x + token * packed + head * n;
      const T* gamma = head < op.heads ? p.query_gamma : p.key_gamma;
      T* y = p.y + token * packed + head * n;
      float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
      for (int64_t i = 0; i < n; ++i) squares += ToFloat(x[i]) * ToFloat(x[i]);
      const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(n) + epsilon);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] = FromFloat<T>(ToFloat(x[i]) * inverse * ToFloat(gamma[i]));
      p.statistics[token * normalized + head] = inverse;
    }
    const int64_t values = token * packed + normalized * n;
    std::memcpy(p.y + values, p.x + values, static_cast<size_t>(op.kv_heads * n) * sizeof(T));
  }
}

template <typename T>
struct BackwardPointers {
  const T *dy, *x, *query_gamma, *key_gamma;
  const float* statistics;
  T* dx;
  float *dquery_gamma, *dkey_gamma;  // sums; null: frozen
};

// As the backward of RMS norm (runtime/cpu/norm.cc), one head at a time. dx may be dy: each element of dy is
// read before the same element of dx is written.
template <typename T>
WT_CPU_KERNEL void Differentiate(const HeadNormBackward& op, BackwardPointers<T> p) {
  const int64_t n = op.head_dim, normalized = op.heads + op.kv_heads, packed = (normalized + op.kv_heads) * n;
  for (int64_t token = 0; token < op.tokens; ++token) {
    for (int64_t head = 0; head < normalized; ++head) {
      const int64_t at = token * packed + head * n;
      const T *x = p.x + at, *dy = p.dy + at, *gamma = head < op.heads ? p.query_gamma : p.key_gamma;
      T* dx = p.dx + at;
      float* dgamma = head < op.heads ? p.dquery_gamma : p.dkey_gamma;
      const float inverse = p.statistics[token * normalized + head];
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
    if (p.dx == p.dy) continue;
    const int64_t values = token * packed + normalized * n;
    std::memcpy(p.dx + values, p.dy + values, static_cast<size_t>(op.kv_heads * n) * sizeof(T));
  }
}

template <typename HeadNorm>
int64_t PackedElements(const HeadNorm& op) {
  return op.tokens * (op.heads + 2 * op.kv_heads) * op.head_dim;
}
template <typename HeadNorm>
int64_t Statistics(const HeadNorm& op) {
  return op.tokens * (op.heads + op.kv_heads);
}

template <typename T>
void Backward(Scratch& scratch, const HeadNormBackward& op, const Operands& operands) {
  BackwardPointers<T> p{.dy = operands.In<T>(0, PackedElements(op)),
                        .x = operands.In<T>(1, PackedElements(op)),
                        .query_gamma = operands.In<T>(2, op.head_dim),
                        .key_gamma = operands.In<T>(3, op.head_dim),
                        .statistics = operands.In(4, Statistics(op)),
                        .dx = operands.Out<T>(0, PackedElements(op)),
                        .dquery_gamma = nullptr,
                        .dkey_gamma = nullptr};
  if (op.frozen) return Differentiate<T>(op, p);
  float* place = scratch.Floats(ElementsBeside<T>(2 * op.head_dim));
  Sums<T> queries(op.head_dim, operands.Out<T>(1, op.head_dim), place);
  Sums<T> keys(op.head_dim, operands.Out<T>(2, op.head_dim), place + ElementsBeside<T>(op.head_dim));
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
                      .query_gamma = operands.In<T>(1, op.head_dim),
                      .key_gamma = operands.In<T>(2, op.head_dim),
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
