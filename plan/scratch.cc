// The memory that the collectives of the live runtime need besides their operands (runtime/ring.cc). It is a
// buffer of the program, so the simulator knows it to the byte.
//
// Only reductions need any: what a rank receives in the ring must be added to its own data, so it cannot be
// received in place. A rank processes its part (1/n of the message) in segments; while one segment is added,
// the next arrives in the other half of the scratch. Segments of 1 MiB are the measured optimum on loopback
// TCP: smaller ones cost more hand-overs between threads, larger ones leave nothing to overlap. A part of at
// most one segment needs no second half, unless partial sums are sent on from the scratch: in a
// reduce-scatter of more than two ranks, one segment arrives while the one before it leaves.
//
// If a rank would send at most 256 KiB that way (and there are at most 8 ranks), every message goes to every
// peer in one step instead (runtime/direct.cc), through the communicator's own fixed buffers: no scratch.
#include <algorithm>

#include "base/ceil_divide.h"
#include "plan/op.h"
#include "plan/scratch.h"

namespace windtunnel {
namespace {

constexpr Bytes kSegment = MiB(1);

}  // namespace

int64_t CollectiveScratchElements(const Collective& collective, int group_size) {
  const bool sums =
      collective.kind == CollectiveKind::kAllReduce || collective.kind == CollectiveKind::kReduceScatter;
  if (!sums || group_size <= 1) return 0;
  if (group_size <= kDirectRanks && MessageBytes(collective) * (group_size - 1) <= kDirectBytes) return 0;
  const int64_t part = CeilDivide(collective.elements, group_size);
  const int64_t segment = kSegment.count() / SizeOf(collective.dtype).count();
  if (collective.kind == CollectiveKind::kReduceScatter && group_size > 2) return 2 * std::min(part, segment);
  return part <= segment ? part : 2 * segment;
}

}  // namespace windtunnel
