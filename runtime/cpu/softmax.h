// The row operations of attention, causal or not.
#pragma once

#include <cstdint>

namespace windtunnel::cpu {

// A tile of attention scores. Its `rows` queries have positions from `first_query` on, counted from the first
// key. A row's key j is visible if j <= first_query + row and, with a window, j > first_query + row - window.
// The other keys (up to `keys`) become zero. Rows lie `stride` elements apart.
struct ScoreTile {
  int64_t rows = 0, keys = 0, stride = 0;
  int64_t first_query = 0;
  float scale = 1.0f;  // applied to the scores
  int64_t window = 0;  // 0: none
};

// scores -> probabilities, in place. log_sum_exp[row], if not null, becomes the log of the sum over visible
// keys of e^(scale score).
void TileSoftmax(const ScoreTile& tile, float* scores, float* log_sum_exp);

// scores -> probabilities, given the log-sum-exp that TileSoftmax returned.
void TileSoftmaxFromLogSumExp(const ScoreTile& tile, const float* log_sum_exp, float* scores);

// gradient of the probabilities -> gradient of the scores, in place: P (dP - sum(P dP)) scale. The row's sum
// is computed as the equal but shorter dot product of the attention's output and its gradient: head_dim
// elements, in rows `output_stride` apart.
void TileSoftmaxBackward(const ScoreTile& tile, const float* probabilities, const float* output,
                         const float* output_gradient, int64_t head_dim, int64_t output_stride,
                         float* gradient);

}  // namespace windtunnel::cpu
