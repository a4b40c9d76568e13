// Which attention the cuda device gives to cuDNN where that is there (docs/decisions/0030): one rule for the live step and for
// predictions of it.
#pragma once

#include "plan/op.h"

namespace windtunnel {

// Flash attention of whole sequences in 16 bits, heads of queries, keys and values alike of up to 256 in multiples of 8: longer ones have kernels, too, but none that keeps
// scores on the chip. Backward also needs whole tiles of 128 keys: what cuDNN has for others is wrong up to 9.15, and not a number on
// Hopper in 9.20 where scores are low (pytorch issue 196678).
bool IsForCudnn(const AttentionForward& op);
bool IsForCudnn(const AttentionBackward& op);

}  // namespace windtunnel
