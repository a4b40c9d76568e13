// Convolutions along sequences, column by column, whose results are activated: v_t = silu(bias + sum over j
// of taps[j] u_{t - j}), with zeros before a sequence. Those of Mamba-2 layers and of gated delta networks.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/cpu/element.h"

namespace windtunnel::cpu {

// Rows of what is convolved are `stride` elements apart; rows of what that makes are `columns` long.
struct CausalConvolution {
  int64_t tokens, seq;  // tokens: of all sequences, each of `seq`
  int64_t columns, length, stride;
  const float* taps;  // [length, columns]; taps[0] is that of the token itself
  const float* bias;  // [columns], or null: there is none
};

// Loads a weight [columns, length], whose last element in a row is that of the token itself, as taps.
template <typename T>
void LoadTaps(int64_t columns, int64_t length, const T* weight, float* taps) {
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t j = 0; j < length; ++j)
      taps[j * columns + column] = ToFloat(weight[column * length + length - 1 - j]);
}

// The inverse, for gradients: writes them, or adds them to what is there.
template <typename T>
void StoreTaps(int64_t columns, int64_t length, const float* taps, bool accumulate, T* weight) {
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t j = 0; j < length; ++j) {
      T& out = weight[column * length + length - 1 - j];
      out = FromFloat<T>(taps[j * columns + column] + (accumulate ? ToFloat(out) : 0.0f));
    }
}

// Writes what the convolution makes of all tokens, activated. x: the first token's row.
template <typename T>
void ConvolveAll(const CausalConvolution& c, const T* x, float* made);

// Some of the columns, from `first` on, with their gradients in rows of `n`.
struct ColumnsOfGradients {
  int64_t first, n;
  float* rows;
};

// Replaces the gradients of what the convolution made, activated, by those of what it made, and adds the
// weights' gradients to dtaps and dbias (which may be null). `made`: room for [columns].
template <typename T>
void ConvolutionWeights(const CausalConvolution& c, const T* x, std::span<const ColumnsOfGradients> parts,
                        float* made, float* dtaps, float* dbias);

// The gradients of what was convolved, from those of what the convolution made. `row`: room for the longest
// part's columns.
template <typename T>
void ConvolutionInputs(const CausalConvolution& c, std::span<const ColumnsOfGradients> parts, float* row,
                       T* dx);

}  // namespace windtunnel::cpu
