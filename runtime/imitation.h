// Imitates, on one rank alone, communication that is left out, so that the computation behind
// it works on realistic values.
//
// An all-gather or a gather repeats this rank's shard. A reduce-scatter passes this rank's part of its input
// on; a reduce, an all-to-all or a shift the whole input. What a receive, a broadcast or a scatter would
// bring from another rank becomes small numbers, or token ids. Nothing else is touched.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/op.h"
#include "runtime/kernel_context.h"

namespace windtunnel {

// What a device does instead of an operator.
struct Imitation {
  // Bytes of the first operand that is read, by offsets; in place, source and target may be the same.
  struct Copy {
    int64_t from = 0, to = 0, bytes = 0;
  };
  std::vector<Copy> copies;      // to the first operand that is written
  std::optional<DType> made_up;  // or that operand becomes made-up values of this type
};

// `rank` and `size` are those of the group; operands are as in plan/ops.h. REQUIRES: the operator writes an
// operand.
Imitation PlanImitation(const OpKind& communication, int rank, int size);

// Does so in the host's memory. Values are made up as small numbers of either sign, or for int32 as token ids
// below `vocabulary`.
void Imitate(const OpKind& communication, int rank, int size, int64_t vocabulary,
             std::span<const TensorRef> reads, std::span<const TensorRef> writes);

}  // namespace windtunnel
