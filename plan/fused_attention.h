// Which attention the cuda device gives to cuDNN if it is available (docs/decisions/0030): one rule for the
// live step and for predictions of it.
#pragma once

#include "plan/attention_ops.h"

namespace windtunnel {

// Flash attention of whole sequences in 16 bits, with heads of one size for queries, keys and values: a
// multiple of 8, up to 256 (for larger ones there are kernels, too, but none that keeps scores on the chip),
// without dropout (cuDNN's random numbers are others).
// Backward also needs whole tiles of 128 keys: for other sequences cuDNN's results are wrong up to 9.15, and
// NaN on Hopper in 9.20 where scores are low (pytorch issue 196678).
bool IsForCudnn(const AttentionForward& op);
bool IsForCudnn(const AttentionBackward& op);

}  // namespace windtunnel
