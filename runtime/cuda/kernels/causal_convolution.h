// Convolutions along sequences, column by column, whose results are activated by SiLU: those of Mamba-2
// layers and of gated delta networks. In backward, a thread walks down a column: it makes the convolution
// again, and keeps the last tokens' gradients for those of the packed columns. Blocks write partial sums of
// the weights' gradients.
#pragma once

#include "runtime/cuda/kernels/convolution_limit.h"
#include "runtime/cuda/kernels/math.h"
#include "runtime/cuda/kernels/operands.h"
#include "runtime/cuda/kernels/partials.h"

namespace windtunnel::WT_KERNELS {

inline constexpr int kTaps = kMostConvolution;

// The convolved columns of a batch. A thread walks down the rows of one column, kRun tokens of a sequence at
// a time.
template <typename T>
struct Columns {
  static constexpr int kThreads = 256, kRun = 64;
  int seq, conv;
  int64_t convolved, packed;  // columns
  int64_t runs, runs_of_sequence;
  const T *x, *weight, *bias;  // x: the first of the columns in `packed`; bias: null if there is none

  Columns(int64_t batch, int64_t sequence, int64_t taps, int64_t columns, int64_t stride, const T* first,
          const T* conv_weight, const T* conv_bias)
      : seq(static_cast<int>(sequence)),
        conv(static_cast<int>(taps)),
        convolved(columns),
        packed(stride),
        runs_of_sequence(CeilDivide(sequence, kRun)),
        x(first),
        weight(conv_weight),
        bias(conv_bias) {
    runs = batch * runs_of_sequence;
  }
  // Of blocks of one column a thread.
  Grid GridOf(const Traits& traits) const {
    const int64_t across = CeilDivide(convolved, kThreads);
    return {across, Queue::BlocksOn(traits, runs, 1, CeilDivide(16, across))};
  }

#if defined(WT_DEVICE)
  // Calls f(the sequence's first token, the run's first token and its end within the sequence).
  template <typename F>
  WT_DEVICE void ForEachRun(F f) const {
    for (int64_t run = BlockY(); run < runs; run += GridY()) {
      const int begin = static_cast<int>(run % runs_of_sequence) * kRun;
      f(run / runs_of_sequence * seq, begin, begin + kRun < seq ? begin + kRun : seq);
    }
  }
#endif
};

#if defined(WT_DEVICE)

// A column's weights, and the inputs of the token that is computed and of those before it.
struct Convolution {
  int conv;
  float bias;
  float taps[kTaps], seen[kTaps] = {};  // of the token itself, of the one before, …

  template <typename T>
  WT_DEVICE Convolution(const Columns<T>& columns, int64_t column)
      : conv(columns.conv), bias(columns.bias == nullptr ? 0.0f : Float(columns.bias[column])) {
    WT_UNROLL
    for (int j = 0; j < kTaps; ++j)
      taps[j] = j < conv ? Float(columns.weight[column * conv + conv - 1 - j]) : 0.0f;
  }
  // Zeros stand before the sequence, and for taps that there are not.
  WT_DEVICE void Push(float x) {
    WT_UNROLL
    for (int j = kTaps - 1; j > 0; --j) seen[j] = j < conv ? seen[j - 1] : 0.0f;
    seen[0] = x;
  }
  // Pushes what is before token `begin` of a sequence, whose column is x, with rows `stride` apart.
  template <typename T>
  WT_DEVICE void Begin(const T* x, int64_t stride, int begin) {
    WT_UNROLL
    for (int j = kTaps - 1; j > 0; --j) Push(j < conv && begin >= j ? Float(x[(begin - j) * stride]) : 0.0f);
  }
  WT_DEVICE float Value() const {
    float value = bias;
    WT_UNROLL
    for (int j = 0; j < kTaps; ++j) value += taps[j] * seen[j];
    return value;
  }
};

#endif

template <typename T>
struct ConvolveKernel {
  static constexpr int kThreads = Columns<T>::kThreads, kAtOnce = 8;
  Columns<T> columns;
  float* u;

  WT_DEVICE void operator()() const {
    const int64_t column = FirstIndex<kThreads>();
    if (column >= columns.convolved) return;
    Convolution convolution(columns, column);
    columns.ForEachRun([&](int64_t first, int begin, int end) {
      const T* const x = columns.x + first * columns.packed + column;
      float* const out = u + first * columns.convolved + column;
      convolution.Begin(x, columns.packed, begin);
      // Loads several tokens before it stores, since no load may move across a store.
      for (int from = begin; from < end; from += kAtOnce) {
        float inputs[kAtOnce];
        WT_UNROLL
        for (int i = 0; i < kAtOnce; ++i)
          inputs[i] = from + i < end ? Float(x[(from + i) * columns.packed]) : 0.0f;
        WT_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          if (from + i >= end) break;
          convolution.Push(inputs[i]);
          const float value = convolution.Value();
          out[(from + i) * columns.convolved] = value * Sigmoid(value);
        }
      }
    });
  }
};

// gradient_at(token, column): of what was made of a token, activated.
template <typename T, typename GradientAt>
struct ConvolveBackwardKernel {
  static constexpr int kThreads = Columns<T>::kThreads, kAtOnce = 4;
  Columns<T> columns;
  GradientAt gradient_at;
  T* dpacked;       // from the first of the columns on
  float* partials;  // [GridY, convolved * conv + convolved]: of the weight and of the bias

  WT_DEVICE void operator()() const {
    const int64_t column = FirstIndex<kThreads>();
    if (column >= columns.convolved) return;
    const int conv = columns.conv;
    float weight[kTaps], of_weight[kTaps] = {}, of_bias = 0.0f;
    WT_UNROLL
    for (int j = 0; j < kTaps; ++j) weight[j] = j < conv ? Float(columns.weight[column * conv + j]) : 0.0f;
    Convolution convolution(columns, column);
    columns.ForEachRun([&](int64_t first, int begin, int end) {
      const T* const x = columns.x + first * columns.packed + column;
      T* const out = dpacked + first * columns.packed + column;
      convolution.Begin(x, columns.packed, begin);
      float gradients[kTaps] = {};  // of what the convolution made of this token, of the one before, …
      // A token's gradient needs those of what was made of the conv - 1 tokens behind it, too.
      const int stop = end + conv - 1;
      for (int from = begin; from < stop; from += kAtOnce) {
        float inputs[kAtOnce], gradient[kAtOnce];
        WT_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int t = from + i;
          const bool exists = t < stop && t < columns.seq;
          inputs[i] = exists ? Float(x[t * columns.packed]) : 0.0f;
          gradient[i] = exists ? gradient_at(first + t, column) : 0.0f;
        }
        WT_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int t = from + i;
          if (t >= stop) break;
          convolution.Push(inputs[i]);
          const float value = convolution.Value(), sigmoid = Sigmoid(value);
          const float slope = sigmoid * (1.0f + value * (1.0f - sigmoid));
          WT_UNROLL
          for (int j = kTaps - 1; j > 0; --j) gradients[j] = j < conv ? gradients[j - 1] : 0.0f;
          gradients[0] = gradient[i] * slope;
          if (t < end) {
            of_bias += gradients[0];
            WT_UNROLL
            for (int j = 0; j < kTaps; ++j) of_weight[j] += gradients[0] * convolution.seen[j];
          }
          const int at = t - (conv - 1);
          if (at < begin) continue;
          float sum = 0.0f;
          WT_UNROLL
          for (int j = 0; j < kTaps; ++j) sum += weight[j] * gradients[j];
          out[at * columns.packed] = Rounded<T>(sum);
        }
      }
    });
    float* const sums = partials + BlockY() * columns.convolved * (conv + 1);
    WT_UNROLL
    for (int j = 0; j < kTaps; ++j)
      if (j < conv) sums[column * conv + conv - 1 - j] = of_weight[j];
    sums[columns.convolved * conv + column] = of_bias;
  }
};

#if defined(WT_DEVICE)

// Writes the gradients of the columns to `dpacked`, and those of the weight and the bias, if there is one,
// from `partials` (GridOf().y * convolved * (conv + 1) numbers).
template <typename T, typename GradientAt>
void LaunchConvolveBackward(Queue& queue, const Columns<T>& columns, const GradientAt& gradient_at,
                            bool accumulate, T* dpacked, float* partials, T* weight, T* bias) {
  const int64_t of_weight = columns.convolved * columns.conv, of_both = of_weight + columns.convolved;
  const Grid grid = columns.GridOf(queue.traits());
  queue.Launch(ConvolveBackwardKernel<T, GradientAt>{columns, gradient_at, dpacked, partials}, grid);
  LaunchAddPartials(queue, grid.y, of_weight, of_both, accumulate, partials, weight);
  if (bias != nullptr)
    LaunchAddPartials(queue, grid.y, columns.convolved, of_both, accumulate, partials + of_weight, bias);
}

#endif

}  // namespace windtunnel::WT_KERNELS
