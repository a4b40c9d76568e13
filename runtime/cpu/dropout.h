// Dropout (runtime/dropout_mask.h), as an operator and within attention (operands: plan/ops.h).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/cpu/operands.h"
#include "runtime/cpu/softmax.h"
#include "runtime/dropout_mask.h"
#include "runtime/kernel_context.h"

namespace windtunnel::cpu {

Status Run(const Dropout& op, const KernelContext& context, const Operands& operands);

// The dropout of a tile of attention's probabilities: the tile's first element has index `first` among the
// site's, and rows are `stride` indices apart.
struct TileDropout {
  const DropoutMask& mask;
  int64_t first = 0, stride = 0;
};

// dropped = probabilities with elements dropped, which may be the same tile. Keys that a row does not see
// stay zero. Rows of `dropped` lie `dropped_stride` elements apart.
void DropProbabilities(const TileDropout& dropout, const ScoreTile& tile, const float* probabilities,
                       float* dropped, int64_t dropped_stride);

// As TileSoftmaxBackward, where `gradient` comes in as that of the dropped probabilities; the dot product of
// output and gradient is still the row's sum. Also writes the dropped probabilities, as DropProbabilities.
void DroppedSoftmaxBackward(const TileDropout& dropout, const ScoreTile& tile, const float* probabilities,
                            const float* output, const float* output_gradient, int64_t head_dim,
                            int64_t output_stride, float* gradient, float* dropped, int64_t dropped_stride);

}  // namespace windtunnel::cpu
