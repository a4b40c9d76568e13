// Imitates, on one rank alone, communication that is left out, so that the computation behind
// it works on realistic values.
#pragma once

#include <cstdint>
#include <span>

#include "plan/op.h"
#include "runtime/device.h"

namespace windtunnel {

// An all-gather or a gather repeats this rank's shard. A reduce-scatter, a reduce, an all-to-all or a shift
// passes this rank's input on. What a receive, a broadcast or a scatter would bring from another rank becomes
// small numbers of either sign, or for int32 token ids below `vocabulary`. Nothing else is touched. `rank`
// and `size` are those of the group; operands are as in plan/op.h.
void Imitate(const OpKind& communication, int rank, int size, int64_t vocabulary,
             std::span<const TensorRef> reads, std::span<const TensorRef> writes);

}  // namespace windtunnel
