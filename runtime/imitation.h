// What a rank makes of communication that is left out, alone: so that what computes next meets values of the usual kind.
#pragma once

#include <cstdint>
#include <span>

#include "plan/op.h"
#include "runtime/device.h"

namespace windtunnel {

// An all-gather or a gather repeats this rank's shard, a reduce-scatter or a reduce passes on what this rank has; what a receive, a
// broadcast or a scatter would bring from another rank becomes small numbers of either sign, or for int32 token ids below
// `vocabulary`. Nothing else is touched. Rank `rank` of a group of `size`; operands as in plan/op.h.
void Imitate(const OpKind& communication, int rank, int size, int64_t vocabulary,
             std::span<const TensorRef> reads, std::span<const TensorRef> writes);

}  // namespace windtunnel
