// Collectives for large messages: bandwidth counts, so every byte crosses as few links as possible, in
// segments that keep all ranks sending, receiving and adding at once.
//
// * All-reduce, reduce-scatter and all-gather go around the ring 0 -> 1 -> … -> n-1 -> 0 in n - 1 steps
// (all-reduce: twice).
//   The message falls into n parts, and in every step each rank passes one part to its right neighbour: a
//   rank sends (n - 1) / n of the message, which is the least possible. A part goes in segments of half the
//   scratch: as soon as one has come, it is added, warm in the cache, and passed on while the next is in
//   flight. (Patarasuk and Yuan, 2009)
// * Broadcast passes segments down the chain root -> root+1 -> …; all-to-all exchanges all parts at once.
#pragma once

#include "base/result.h"
#include "runtime/bulk_channel.h"
#include "runtime/group_operator.h"

namespace windtunnel {

// REQUIRES: op is no barrier, and its group has at least two ranks.
Status RunBulk(const GroupOperator& op, BulkChannel& channel);

}  // namespace windtunnel
