#include "runtime/cpu/relative_bias.h"

#include <algorithm>

#include "plan/relative_buckets.h"
#include "runtime/cpu/element.h"
#include "runtime/cpu/isa.h"

namespace windtunnel::cpu {
namespace {

// Row q of a head's square has the values of the distances from -q on: with the values of all distances of a
// sequence, from 1 - seq to seq - 1, in a row, it begins seq - 1 - q behind the first.
int64_t FirstOfRow(int64_t seq, int64_t query) { return seq - 1 - query; }
int64_t Distances(int64_t seq) { return 2 * seq - 1; }

template <typename T>
Status Forward(Scratch&, const RelativeBias& op, const Operands& operands) {
  const RelativeBuckets buckets(!op.causal);
  const int64_t seq = op.seq;
  const T* table = operands.In<T>(0, op.heads * RelativeBuckets::kCount);
  T* bias = operands.Out<T>(0, op.heads * seq * seq);
  for (int64_t head = 0; head < op.heads; ++head) {
    const T* of_head = table + head * RelativeBuckets::kCount;
    T* square = bias + head * seq * seq;
    // The last row has all distances up to 0, the first one those from 0 on; rows between share them.
    T *first = square, *last = square + (seq - 1) * seq;
    for (int64_t i = 0; i < seq; ++i) {
      last[i] = of_head[buckets.At(i - (seq - 1))];
      first[i] = of_head[buckets.At(i)];
    }
    for (int64_t query = 1; query + 1 < seq; ++query) {
      T* row = square + query * seq;
      std::copy_n(last + FirstOfRow(seq, query), query + 1, row);
      std::copy_n(first + 1, seq - query - 1, row + query + 1);
    }
  }
  return Ok();
}

template <typename T>
WT_CPU_KERNEL void AddRow(int64_t n, const T* in, float* sums) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sums[i] += ToFloat(in[i]);
}

// Sums by distance, then by bucket.
template <typename T>
Status Backward(Scratch& scratch, const RelativeBiasBackward& op, const Operands& operands) {
  const RelativeBuckets buckets(!op.causal);
  const int64_t seq = op.seq, square = seq * seq;
  const T* dscores = operands.In<T>(0, op.batch * op.heads * square);
  T* dtable = operands.Out<T>(0, op.heads * RelativeBuckets::kCount);
  float* sums = scratch.Floats(Distances(seq));
  for (int64_t head = 0; head < op.heads; ++head) {
    std::fill_n(sums, Distances(seq), 0.0f);
    for (int64_t b = 0; b < op.batch; ++b) {
      const T* of_head = dscores + (b * op.heads + head) * square;
      for (int64_t query = 0; query < seq; ++query)
        AddRow(seq, of_head + query * seq, sums + FirstOfRow(seq, query));
    }
    T* out = dtable + head * RelativeBuckets::kCount;
    float of_bucket[RelativeBuckets::kCount] = {};
    const int64_t seen = op.causal ? seq : Distances(seq);  // the first of them, up to distance 0
    for (int64_t i = 0; i < seen; ++i) of_bucket[buckets.At(i - (seq - 1))] += sums[i];
    for (int i = 0; i < RelativeBuckets::kCount; ++i)
      out[i] = FromFloat<T>(of_bucket[i] + (op.accumulate ? ToFloat(out[i]) : 0.0f));
  }
  return Ok();
}

}  // namespace

Status Run(Scratch& scratch, const RelativeBias& op, const Operands& operands) {
  return WithElement(op.dtype,
                     [&](auto element) { return Forward<decltype(element)>(scratch, op, operands); });
}
Status Run(Scratch& scratch, const RelativeBiasBackward& op, const Operands& operands) {
  return WithElement(op.dtype,
                     [&](auto element) { return Backward<decltype(element)>(scratch, op, operands); });
}

}  // namespace windtunnel::cpu
