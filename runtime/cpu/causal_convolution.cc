#include "runtime/cpu/causal_convolution.h"

#include <algorithm>

#include "runtime/cpu/isa.h"
#include "runtime/cpu/vector_math.h"

namespace windtunnel::cpu {
namespace {

// What the convolution makes of a token, before it is activated. `x` is the token's row; `seen` tokens are
// before it in its sequence.
template <typename T>
WT_INLINE void Convolve(const CausalConvolution& c, const T* x, int64_t seen, float* out) {
  if (c.bias != nullptr) std::copy_n(c.bias, c.columns, out);
  else std::fill_n(out, c.columns, 0.0f);
  for (int64_t j = 0; j <= std::min(seen, c.length - 1); ++j) {
    const float* tap = c.taps + j * c.columns;
    const T* from = x - j * c.stride;
#pragma omp simd
    for (int64_t i = 0; i < c.columns; ++i) out[i] += tap[i] * ToFloat(from[i]);
  }
}

template <typename T>
WT_CPU_KERNEL void Convolved(const CausalConvolution& c, const T* x, float* made) {
  for (int64_t token = 0; token < c.tokens; ++token) {
    float* row = made + token * c.columns;
    Convolve(c, x + token * c.stride, token % c.seq, row);
#pragma omp simd
    for (int64_t i = 0; i < c.columns; ++i) row[i] *= Sigmoid(row[i]);
  }
}

template <typename T>
WT_CPU_KERNEL void Weights(const CausalConvolution& c, const T* all,
                           std::span<const ColumnsOfGradients> parts, float* made, float* dtaps,
                           float* dbias) {
  for (int64_t token = 0; token < c.tokens; ++token) {
    const T* x = all + token * c.stride;
    const int64_t seen = token % c.seq;
    Convolve(c, x, seen, made);
    for (const ColumnsOfGradients& part : parts) {
      float* gradient = part.rows + token * part.n;
      const float* value = made + part.first;
#pragma omp simd
      for (int64_t i = 0; i < part.n; ++i) {
        const float sigmoid = Sigmoid(value[i]);
        gradient[i] *= sigmoid * (1.0f + value[i] * (1.0f - sigmoid));
      }
      if (dbias != nullptr) {
        float* bias = dbias + part.first;
#pragma omp simd
        for (int64_t i = 0; i < part.n; ++i) bias[i] += gradient[i];
      }
      for (int64_t j = 0; j <= std::min(seen, c.length - 1); ++j) {
        const T* from = x - j * c.stride + part.first;
        float* tap = dtaps + j * c.columns + part.first;
#pragma omp simd
        for (int64_t i = 0; i < part.n; ++i) tap[i] += gradient[i] * ToFloat(from[i]);
      }
    }
  }
}

template <typename T>
WT_CPU_KERNEL void Inputs(const CausalConvolution& c, std::span<const ColumnsOfGradients> parts, float* row,
                          T* dx) {
  for (int64_t token = 0; token < c.tokens; ++token) {
    const int64_t behind = c.seq - 1 - token % c.seq;  // tokens of the sequence
    for (const ColumnsOfGradients& part : parts) {
      std::fill_n(row, part.n, 0.0f);
      for (int64_t j = 0; j <= std::min(behind, c.length - 1); ++j) {
        const float* gradient = part.rows + (token + j) * part.n;
        const float* tap = c.taps + j * c.columns + part.first;
#pragma omp simd
        for (int64_t i = 0; i < part.n; ++i) row[i] += gradient[i] * tap[i];
      }
      T* out = dx + token * c.stride + part.first;
#pragma omp simd
      for (int64_t i = 0; i < part.n; ++i) out[i] = FromFloat<T>(row[i]);
    }
  }
}

}  // namespace

template <typename T>
void ConvolveAll(const CausalConvolution& c, const T* x, float* made) {
  Convolved(c, x, made);
}

template <typename T>
void ConvolutionWeights(const CausalConvolution& c, const T* x, std::span<const ColumnsOfGradients> parts,
                        float* made, float* dtaps, float* dbias) {
  Weights(c, x, parts, made, dtaps, dbias);
}

template <typename T>
void ConvolutionInputs(const CausalConvolution& c, std::span<const ColumnsOfGradients> parts, float* row,
                       T* dx) {
  Inputs(c, parts, row, dx);
}

template void ConvolveAll<float>(const CausalConvolution&, const float*, float*);
template void ConvolutionWeights<float>(const CausalConvolution&, const float*,
                                        std::span<const ColumnsOfGradients>, float*, float*, float*);
template void ConvolutionInputs<float>(const CausalConvolution&, std::span<const ColumnsOfGradients>, float*,
                                       float*);
template void ConvolveAll<BFloat16>(const CausalConvolution&, const BFloat16*, float*);
template void ConvolutionWeights<BFloat16>(const CausalConvolution&, const BFloat16*,
                                           std::span<const ColumnsOfGradients>, float*, float*, float*);
template void ConvolutionInputs<BFloat16>(const CausalConvolution&, std::span<const ColumnsOfGradients>,
                                          float*, BFloat16*);
template void ConvolveAll<Float16>(const CausalConvolution&, const Float16*, float*);
template void ConvolutionWeights<Float16>(const CausalConvolution&, const Float16*,
                                          std::span<const ColumnsOfGradients>, float*, float*, float*);
template void ConvolutionInputs<Float16>(const CausalConvolution&, std::span<const ColumnsOfGradients>,
                                         float*, Float16*);

}  // namespace windtunnel::cpu
