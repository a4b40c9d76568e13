#include "runtime/cpu/loss.h"

#include <algorithm>
#include <cmath>

#include "base/ceil_divide.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/embedding.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/vector_math.h"

namespace windtunnel::cpu {
namespace {

constexpr int64_t kMaxBlocks = 256;
// 4 KiB of logits: stays in the first-level cache between maximum and sum
constexpr int64_t kSmallestBlock = 1024;

// x -> e^(x - maximum); returns their sum.
WT_INLINE float Exponentiate(int64_t n, float maximum, float* x) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    x[i] = Exp(x[i] - maximum);
    sum += x[i];
  }
  return sum;
}

// Makes two passes over the row. The first replaces each block by e^(x - m), where m is the largest logit so
// far, and keeps m. The second multiplies each block by the factor that turns it into the softmax times
// `scale`. Returns the row's log-sum-exp.
WT_INLINE double SoftmaxInPlace(int64_t n, float scale, float* x) {
  const int64_t block = std::max(kSmallestBlock, CeilDivide(n, kMaxBlocks));
  float block_maximum[kMaxBlocks];
  float maximum = x[0];
  double sum = 0.0;
  for (int64_t first = 0; first < n; first += block) {
    const int64_t length = std::min(block, n - first);
    const float grown = std::max(maximum, Maximum(length, x + first));
    const double block_sum = Exponentiate(length, grown, x + first);
    sum = sum * std::exp(static_cast<double>(maximum) - grown) + block_sum;
    maximum = grown;
    block_maximum[first / block] = grown;
  }
  for (int64_t first = 0; first < n; first += block) {
    const int64_t length = std::min(block, n - first);
    const float factor = static_cast<float>(
        scale * std::exp(static_cast<double>(block_maximum[first / block]) - maximum) / sum);
    float* part = x + first;
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) part[i] *= factor;
  }
  return maximum + std::log(sum);
}

// Returns the sum of the rows' losses; the logits become the gradient of the loss times `scale`. `place` has
// room for one row in fp32 if logits are 16-bit.
template <typename T>
WT_CPU_KERNEL double CrossEntropyRows(int64_t rows, int64_t n, const int32_t* targets, float scale, T* logits,
                                      float* place) {
  double loss = 0.0;
  for (int64_t row = 0; row < rows; ++row) {
    if (targets[row] == kNoToken) {
      std::fill_n(logits + row * n, n, T());
      continue;
    }
    Sums<T> x(n, logits + row * n, place);
    x.Load();
    const double target_logit = x.data()[targets[row]];
    loss += SoftmaxInPlace(n, scale, x.data()) - target_logit;
    x.data()[targets[row]] -= scale;
    x.Store();
  }
  return loss;
}

// ---- over the columns of the logits that a tensor-parallel rank holds

// A row in fp32: the row itself, or converted into `place`.
WT_INLINE const float* InFloats(int64_t, const float* row, float*) { return row; }
template <typename T>
const float* InFloats(int64_t n, const T* row, float* place) {
  Convert(n, 1.0f, row, place);
  return place;
}

// Nothing is kept between the three passes: a row fits the cache, or is read from memory three times.
WT_INLINE double SumOfExponentials(int64_t n, float maximum, const float* x) {
  double sum = 0.0;
  for (int64_t first = 0; first < n; first += kSmallestBlock) {
    const int64_t length = std::min(kSmallestBlock, n - first);
    const float* part = x + first;
    float block_sum = 0.0f;
#pragma omp simd reduction(+ : block_sum)
    for (int64_t i = 0; i < length; ++i) block_sum += Exp(part[i] - maximum);
    sum += block_sum;
  }
  return sum;
}

template <typename T>
WT_CPU_KERNEL void RowMaxima(int64_t rows, int64_t n, const T* logits, float* maximum, float* place) {
  for (int64_t row = 0; row < rows; ++row) maximum[row] = Maximum(n, InFloats(n, logits + row * n, place));
}

// What the three passes work on: a rank's columns, which begin at column `first` of the vocabulary, and each
// row's target and maximum.
struct VocabPart {
  int64_t rows, columns, first;
  const int32_t* targets;
  const float* maximum;

  bool HoldsTarget(int64_t row) const { return targets[row] >= first && targets[row] < first + columns; }
};

template <typename T>
WT_CPU_KERNEL void RowSums(const VocabPart& part, const T* logits, float* target, float* sum, float* place) {
  for (int64_t row = 0; row < part.rows; ++row) {
    const float* x = InFloats(part.columns, logits + row * part.columns, place);
    const float maximum = part.maximum[row];
    target[row] = part.HoldsTarget(row) ? x[part.targets[row] - part.first] - maximum : 0.0f;
    sum[row] = static_cast<float>(SumOfExponentials(part.columns, maximum, x));
  }
}

WT_INLINE void ScaledExponentials(int64_t n, float maximum, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = Exp(x[i] - maximum) * factor;
}

// Returns the sum of the rows' losses.
template <typename T>
WT_CPU_KERNEL double VocabParallelRows(const VocabPart& part, const float* target, const float* sum,
                                       float scale, T* logits, float* place) {
  double loss = 0.0;
  for (int64_t row = 0; row < part.rows; ++row) {
    if (part.targets[row] == kNoToken) {
      std::fill_n(logits + row * part.columns, part.columns, T());
      continue;
    }
    Sums<T> x(part.columns, logits + row * part.columns, place);
    x.Load();
    ScaledExponentials(part.columns, part.maximum[row], scale / sum[row], x.data());
    if (part.HoldsTarget(row)) x.data()[part.targets[row] - part.first] -= scale;
    x.Store();
    loss += std::log(static_cast<double>(sum[row])) - target[row];
  }
  return loss;
}

template <typename Op>
VocabPart PartOf(const Op& op, const TensorPosition& tensor, const Operands& operands) {
  return {op.rows, op.vocab, tensor.rank * op.vocab, operands.InIntegers(1, op.rows),
          operands.In(2, op.rows)};
}

// Returns the sum of squared differences; the gradient becomes `scale` times the differences.
template <typename T>
WT_CPU_KERNEL double SquaredErrors(int64_t n, const T* prediction, const float* target, float scale,
                                   T* gradient) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const float difference = ToFloat(prediction[i]) - target[i];
    sum += static_cast<double>(difference) * difference;
    gradient[i] = FromFloat<T>(scale * difference);
  }
  return sum;
}

}  // namespace

namespace {

// The factor of the mean's gradient. The loss scale is the last operand.
template <typename Op>
double GradientScale(const Op& op, const Operands& operands) {
  return op.scaled ? op.gradient_scale * *operands.In(operands.reads.size() - 1, kLossScaleNumbers)
                   : op.gradient_scale;
}

// The loss is the mean over the rows that count. `sum_rows`(gradient's scale, logits, room for a row) returns
// their sum.
template <typename Op, typename SumRows>
void MeanLoss(Scratch& scratch, const Op& op, const Operands& operands, SumRows sum_rows) {
  const double rows = static_cast<double>(op.rows) * op.counted;
  const double sum = WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    T* logits = operands.Out<T>(1, op.rows * op.vocab);
    WT_CHECK(logits == operands.In<T>(0, op.rows * op.vocab));  // the gradient takes the logits' place
    float* place = scratch.Floats(ElementsBeside<T>(op.vocab));
    return sum_rows(static_cast<float>(GradientScale(op, operands) / rows), logits, place);
  });
  *operands.Out(0, 1) = static_cast<float>(sum / rows);
}

}  // namespace

Status Run(Scratch& scratch, const CrossEntropy& op, const Operands& operands) {
  const int32_t* targets = operands.InIntegers(1, op.rows);
  WT_RETURN_IF_ERROR(CheckIndices("target", targets, op.rows, op.vocab, op.skips));
  MeanLoss(scratch, op, operands, [&](float scale, auto* logits, float* place) {
    return CrossEntropyRows(op.rows, op.vocab, targets, scale, logits, place);
  });
  return Ok();
}

Status Run(Scratch& scratch, const VocabParallelMaximum& op, const Operands& operands) {
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    float* place = scratch.Floats(ElementsBeside<T>(op.vocab));
    RowMaxima(op.rows, op.vocab, operands.In<T>(0, op.rows * op.vocab), operands.Out(0, op.rows), place);
  });
  return Ok();
}

Status Run(Scratch& scratch, const VocabParallelSums& op, const TensorPosition& tensor,
           const Operands& operands) {
  const VocabPart part = PartOf(op, tensor, operands);
  WT_RETURN_IF_ERROR(CheckIndices("target", part.targets, op.rows, tensor.ranks * op.vocab, op.skips));
  WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    float* place = scratch.Floats(ElementsBeside<T>(op.vocab));
    RowSums(part, operands.In<T>(0, op.rows * op.vocab), operands.Out(0, op.rows), operands.Out(1, op.rows),
            place);
  });
  return Ok();
}

Status Run(Scratch& scratch, const VocabParallelLoss& op, const TensorPosition& tensor,
           const Operands& operands) {
  const VocabPart part = PartOf(op, tensor, operands);
  MeanLoss(scratch, op, operands, [&](float scale, auto* logits, float* place) {
    return VocabParallelRows(part, operands.In(3, op.rows), operands.In(4, op.rows), scale, logits, place);
  });
  return Ok();
}

Status Run(const MeanSquaredError& op, const Operands& operands) {
  const int64_t elements = op.rows * op.columns;
  const double count = static_cast<double>(elements);
  const float* target = operands.In(1, elements);
  const float scale = static_cast<float>(2.0 * GradientScale(op, operands) / count);
  const double sum = WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    return SquaredErrors(elements, operands.In<T>(0, elements), target, scale, operands.Out<T>(1, elements));
  });
  *operands.Out(0, 1) = static_cast<float>(sum / count);
  return Ok();
}

}  // namespace windtunnel::cpu
