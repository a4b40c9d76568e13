#include "plan/allocator.h"

#include <algorithm>

#include "base/check.h"

namespace windtunnel {

Result<Allocation> Allocator::Allocate(Bytes bytes, MemoryOwner owner) {
  WT_CHECK_GE(bytes.count(), 0);
  WT_ASSIGN_OR_RETURN(Allocation allocation, Take(bytes, owner));
  allocation.requested = std::min(RoundedRequest(bytes), allocation.bytes);
  allocated_ += allocation.bytes;
  requested_ += allocation.requested;
  return allocation;
}

void Allocator::Free(const Allocation& allocation, MemoryEvent until) {
  allocated_ -= allocation.bytes;
  requested_ -= allocation.requested;
  GiveBack(allocation, until);
}

void Allocator::NoteUnserved(Bytes rounded) {
  if (reserved_ - allocated_ >= rounded) largest_unserved_ = std::max(largest_unserved_, rounded);
}

// All streams share the compute stream's pools.
Result<Allocation> CachingAllocator::Take(Bytes bytes, MemoryOwner) {
  const Bytes rounded = RoundedRequest(bytes);
  const PoolKey pool{{}, PoolSizeOf(rounded)};
  BlockPlace place = blocks_.BestFit(pool, rounded);
  if (place == 0) {
    const Bytes segment = SegmentFor(rounded);
    NoteUnserved(rounded);
    WT_ASSIGN_OR_RETURN(const uint64_t address, source_->Reserve(segment));
    NoteReserved(segment);
    place = blocks_.AddSegment(address, segment, pool, BlockState::kFree);
  }
  const Bytes whole = blocks_.at(place).bytes;
  const bool splits = IsWorthSplitting(pool.size, whole - rounded);
  const MemoryBlock& used = blocks_.Use(place, splits ? rounded : whole);
  return Allocation{used.address, used.bytes, place};
}

// The program frees memory only where its edges order the next use after the last, on whatever stream: no
// event is needed.
void CachingAllocator::GiveBack(const Allocation& allocation, MemoryEvent) {
  WT_CHECK(blocks_.at(allocation.place).state == BlockState::kUsed);
  blocks_.SetState(allocation.place, BlockState::kFree);
}

}  // namespace windtunnel
