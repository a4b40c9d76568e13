// The row operations of attention and of the loss.
#pragma once

#include <cstdint>

namespace windtunnel::cpu {

// A tile of attention scores: `rows` queries, the first of which is position `first_query`, where the first key is 0; key j of a row is
// visible when j <= first_query + row, and with a window only if j is one of so many last ones of those. The others (up to `keys`) become
// zero. Rows lie `stride` elements apart.
struct ScoreTile {
  int64_t rows = 0, keys = 0, stride = 0;
  int64_t first_query = 0;
  float scale = 1.0f;  // applied to the scores
  int64_t window = 0;  // 0: none
};

// scores -> probabilities, in place; log_sum_exp[row] (when not null) = log of the sum over visible keys of
// e^(scale score).
void CausalSoftmax(const ScoreTile& tile, float* scores, float* log_sum_exp);

// scores -> probabilities again, given what CausalSoftmax returned.
void CausalSoftmaxFromLogSumExp(const ScoreTile& tile, const float* log_sum_exp, float* scores);

// gradient of the probabilities -> gradient of the scores, in place: P (dP - sum(P dP)) scale. The row's sum
// is also the dot product of the attention's output and its gradient, head_dim elements of rows
// `output_stride` apart, which is shorter.
void CausalSoftmaxBackward(const ScoreTile& tile, const float* probabilities, const float* output,
                           const float* output_gradient, int64_t head_dim, int64_t output_stride,
                           float* gradient);

}  // namespace windtunnel::cpu
