// Hands out memory to a role's buffers. Both executors run the same allocator, the runtime over real memory
// and the simulator over none, so a predicted peak is exact by construction.
//
// There are two policies (docs/decisions/0007-allocators.md says why). In both
//   - requests are rounded up to 512 B;
//   - a request of up to 1 MiB is served from 2 MiB segments, one below 10 MiB from 20 MiB segments, a larger
//     one from a segment of its own size rounded up to 2 MiB;
//   - a request takes the smallest free block that fits (ties: the one whose segment was reserved first, then
//     the lowest address), which is split when at least 512 B (small) or more than 1 MiB (large) are left;
//   - a freed block merges with its free neighbours.
//
// CachingAllocator, Windtunnel's own, has one pool for all streams, since the program's edges say when memory
// may pass from one stream to another, and keeps its segments for ever. PytorchAllocator
// (plan/pytorch_allocator.h) follows PyTorch: a pool per stream, freed blocks that streams still use,
// segments given back when memory runs out, segments that grow. With one stream, no record_stream and enough
// memory the two do the same.
//
//   CachingAllocator allocator(&source);
//   WT_ASSIGN_OR_RETURN(Allocation a, allocator.Allocate(MiB(3)));
//   …
//   allocator.Free(a);
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/units.h"
#include "plan/memory_blocks.h"
#include "plan/segment_source.h"

namespace windtunnel {

struct Allocation {
  uint64_t address = 0;
  Bytes bytes;  // of the block: at least `requested`
  BlockPlace place = 0;
  Bytes requested{};  // rounded
};

// An event that the host learns of when it has happened, numbered by the allocator's user. kNow has happened.
using MemoryEvent = int64_t;
inline constexpr MemoryEvent kNow = -1;

class Allocator {
 public:
  virtual ~Allocator() = default;
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Memory of `owner`. REQUIRES: bytes >= 0. Failed: the source's error, when memory has run out.
  Result<Allocation> Allocate(Bytes bytes, MemoryOwner owner = {});
  // It counts as free at once, but is reused only after `until`. REQUIRES: from Allocate, not freed before.
  void Free(const Allocation& allocation, MemoryEvent until = kNow);
  // `event` has happened: blocks freed until then may be reused.
  virtual void Complete(MemoryEvent event) = 0;

  Bytes allocated() const { return allocated_; }
  Bytes requested() const { return requested_; }
  Bytes reserved() const { return reserved_; }
  // Fragmentation: the largest request that had to reserve memory although enough was reserved and free.
  Bytes largest_unserved() const { return largest_unserved_; }
  // How often cached memory was given back because memory had run out.
  int64_t retries() const { return retries_; }

 protected:
  void NoteRetry() { ++retries_; }
  void NoteReserved(Bytes bytes) { reserved_ += bytes; }  // negative: given back
  void NoteUnserved(Bytes rounded);

 private:
  virtual Result<Allocation> Take(Bytes bytes, MemoryOwner owner) = 0;
  virtual void GiveBack(const Allocation& allocation, MemoryEvent until) = 0;

  Bytes allocated_, requested_, reserved_, largest_unserved_;
  int64_t retries_ = 0;
};

// Windtunnel's policy. A request of zero bytes takes a block of 512 B, so that every buffer has an address.
class CachingAllocator : public Allocator {
 public:
  explicit CachingAllocator(SegmentSource* source) : source_(source) {}
  void Complete(MemoryEvent) override {}

 private:
  Result<Allocation> Take(Bytes bytes, MemoryOwner owner) override;
  void GiveBack(const Allocation& allocation, MemoryEvent until) override;

  SegmentSource* source_;
  MemoryBlocks blocks_;
};

}  // namespace windtunnel
