#include "runtime/cpu/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/ceil_divide.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/vector_math.h"

namespace windtunnel::cpu {
namespace {

// Rows are processed up to the next multiple of the widest vector, so that no row ends in a scalar loop.
// Hidden keys in that range are set to -infinity before the exponential.
constexpr int64_t kVector = 16;

struct RowExtent {
  int64_t begin, end;  // keys that the row may see
  int64_t worked;      // the end rounded up, within the tile
};

WT_INLINE RowExtent ExtentOf(const ScoreTile& tile, int64_t row) {
  const int64_t end = std::min(tile.keys, tile.first_query + row + 1);
  const int64_t begin = tile.window == 0 ? 0 : std::max<int64_t>(0, tile.first_query + row + 1 - tile.window);
  return {begin, end, std::min(tile.keys, CeilDivide(end, kVector) * kVector)};
}

WT_INLINE void HideInWorked(const RowExtent& extent, float* row) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  std::fill(row, row + extent.begin, kHidden);
  for (int64_t j = extent.end; j < extent.worked; ++j) row[j] = kHidden;
}

WT_INLINE void ZeroRest(const ScoreTile& tile, const RowExtent& extent, float* row) {
  std::fill(row + extent.worked, row + tile.keys, 0.0f);
}

}  // namespace

WT_CPU_KERNEL void TileSoftmax(const ScoreTile& tile, float* scores, float* log_sum_exp) {
  const float scale = tile.scale;
  for (int64_t row = 0; row < tile.rows; ++row) {
    float* p = scores + row * tile.stride;
    const RowExtent extent = ExtentOf(tile, row);
    HideInWorked(extent, p);
    const float shift = -scale * Maximum(extent.worked, p);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < extent.worked; ++j) {
      p[j] = Exp(scale * p[j] + shift);
      sum += p[j];
    }
    const float inverse = 1.0f / sum;
#pragma omp simd
    for (int64_t j = 0; j < extent.worked; ++j) p[j] *= inverse;
    ZeroRest(tile, extent, p);
    if (log_sum_exp != nullptr) log_sum_exp[row] = std::log(sum) - shift;
  }
}

WT_CPU_KERNEL void TileSoftmaxFromLogSumExp(const ScoreTile& tile, const float* log_sum_exp, float* scores) {
  const float scale = tile.scale;
  for (int64_t row = 0; row < tile.rows; ++row) {
    float* p = scores + row * tile.stride;
    const RowExtent extent = ExtentOf(tile, row);
    HideInWorked(extent, p);
    const float shift = -log_sum_exp[row];
#pragma omp simd
    for (int64_t j = 0; j < extent.worked; ++j) p[j] = Exp(scale * p[j] + shift);
    ZeroRest(tile, extent, p);
  }
}

WT_CPU_KERNEL void TileSoftmaxBackward(const ScoreTile& tile, const float* probabilities, const float* output,
                                       const float* output_gradient, int64_t head_dim, int64_t output_stride,
                                       float* gradient) {
  const float scale = tile.scale;
  for (int64_t row = 0; row < tile.rows; ++row) {
    const int64_t of_row = row * output_stride;
    const float sum = DotProduct(head_dim, output + of_row, output_gradient + of_row);
    const float* p = probabilities + row * tile.stride;
    float* ds = gradient + row * tile.stride;
    const RowExtent extent = ExtentOf(tile, row);  // the probabilities of hidden keys are zero
#pragma omp simd
    for (int64_t j = 0; j < extent.worked; ++j) ds[j] = p[j] * (ds[j] - sum) * scale;
    ZeroRest(tile, extent, ds);
  }
}

}  // namespace windtunnel::cpu
