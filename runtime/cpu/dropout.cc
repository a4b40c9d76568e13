#include "runtime/cpu/dropout.h"

#include <algorithm>
#include <array>

#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/vector_math.h"

namespace windtunnel::cpu {
namespace {

// Random numbers are made for this many elements at a time, into the first-level cache.
constexpr int64_t kPiece = 512;
using Factors = std::array<float, kPiece + 2>;

// Factors of elements [first, first + n) of the site: zero or the scale. Returns the first one's place.
WT_INLINE const float* FactorsOf(RandomStream stream, uint32_t threshold, float scale, int64_t first,
                                 int64_t n, Factors& factors) {
  const auto from = static_cast<uint64_t>(first) / 2;
  const int64_t pairs = (first % 2 + n + 1) / 2;
  float* out = factors.data();
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    const uint64_t bits = stream.At(from + static_cast<uint64_t>(i));
    out[2 * i] = static_cast<uint32_t>(bits) >= threshold ? scale : 0.0f;
    out[2 * i + 1] = static_cast<uint32_t>(bits >> 32) >= threshold ? scale : 0.0f;
  }
  return out + first % 2;
}

template <typename T>
WT_CPU_KERNEL void DropRow(const DropoutMask& mask, int64_t first, int64_t n, const T* in, T* out,
                           uint8_t* kept) {
  Factors factors;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t count = std::min(kPiece, n - begin);
    const float* f = FactorsOf(mask.stream(), mask.threshold(), mask.scale(), first + begin, count, factors);
    const T* x = in + begin;
    T* y = out + begin;
    uint8_t* keeps = kept + begin;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      keeps[i] = f[i] != 0.0f;
      y[i] = FromFloat<T>(keeps[i] != 0 ? ToFloat(x[i]) * f[i] : 0.0f);
    }
  }
}

template <typename T>
WT_CPU_KERNEL void DropGradient(int64_t n, float scale, const uint8_t* kept, const T* dy, T* dx) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = FromFloat<T>(kept[i] != 0 ? ToFloat(dy[i]) * scale : 0.0f);
}

// The keys that a row of the tile may see end here; the rest of the tile is zero.
WT_INLINE int64_t EndOf(const ScoreTile& tile, int64_t row) {
  return std::min(tile.keys, tile.first_query + row + 1);
}

// Calls f(factors, first key, keys) for the pieces of a row.
template <typename F>
WT_INLINE void ForEachPiece(const TileDropout& dropout, const ScoreTile& tile, int64_t row, F f) {
  const DropoutMask& mask = dropout.mask;
  const int64_t first = dropout.first + row * dropout.stride, end = EndOf(tile, row);
  Factors factors;
  for (int64_t begin = 0; begin < end; begin += kPiece) {
    const int64_t count = std::min(kPiece, end - begin);
    f(FactorsOf(mask.stream(), mask.threshold(), mask.scale(), first + begin, count, factors), begin, count);
  }
}

}  // namespace

WT_CPU_KERNEL void DropProbabilities(const TileDropout& dropout, const ScoreTile& tile,
                                     const float* probabilities, float* dropped, int64_t dropped_stride) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    const float* p = probabilities + row * tile.stride;
    float* out = dropped + row * dropped_stride;
    ForEachPiece(dropout, tile, row, [&](const float* factors, int64_t begin, int64_t count) {
#pragma omp simd
      for (int64_t j = 0; j < count; ++j) out[begin + j] = p[begin + j] * factors[j];
    });
    std::fill(out + EndOf(tile, row), out + tile.keys, 0.0f);
  }
}

WT_CPU_KERNEL void DroppedSoftmaxBackward(const TileDropout& dropout, const ScoreTile& tile,
                                          const float* probabilities, const float* output,
                                          const float* output_gradient, int64_t head_dim,
                                          int64_t output_stride, float* gradient, float* dropped,
                                          int64_t dropped_stride) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    const int64_t of_row = row * output_stride;
    const float sum = DotProduct(head_dim, output + of_row, output_gradient + of_row);
    const float* p = probabilities + row * tile.stride;
    float* ds = gradient + row * tile.stride;
    float* kept = dropped + row * dropped_stride;
    ForEachPiece(dropout, tile, row, [&](const float* factors, int64_t begin, int64_t count) {
#pragma omp simd
      for (int64_t j = begin; j < begin + count; ++j) {
        const float probability = p[j], factor = factors[j - begin];
        ds[j] = probability * (ds[j] * factor - sum) * tile.scale;
        kept[j] = probability * factor;
      }
    });
    const int64_t end = EndOf(tile, row);
    std::fill(ds + end, ds + tile.keys, 0.0f);
    std::fill(kept + end, kept + tile.keys, 0.0f);
  }
}

namespace {

template <typename T>
void Drop(const Dropout& op, const KernelContext& context, const Operands& operands) {
  const DropoutMask mask(op.site, context);
  const T* in = operands.In<T>(0, op.elements);
  T* out = operands.Out<T>(0, op.elements);
  auto* kept = operands.Out<uint8_t>(1, op.elements);
  const DropoutPart part(op, context);
  for (int64_t row = 0; row < part.rows; ++row) {
    const int64_t token = part.first_row + row;
    const int64_t sample = mask.SampleOf(part.batch, token / op.seq);
    const int64_t position = WholePosition(op.context, context.context.rank, op.seq, token % op.seq);
    const int64_t place = row * op.columns;
    DropRow(mask, part.FirstOf(sample, position), op.columns, in + place, out + place, kept + place);
  }
}

}  // namespace

Status Run(const Dropout& op, const KernelContext& context, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    if (!op.backward) return Drop<T>(op, context, operands);
    const DropoutMask mask(op.site, context);
    DropGradient(op.elements, mask.scale(), operands.In<uint8_t>(1, op.elements),
                 operands.In<T>(0, op.elements), operands.Out<T>(0, op.elements));
  });
  return Ok();
}

}  // namespace windtunnel::cpu
