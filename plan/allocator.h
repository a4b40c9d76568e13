// The caching allocator's policy, shared by both executors: the runtime runs it over device memory, the simulator over
// none, so a predicted peak is exact by construction.
//
// Rules (after PyTorch's CUDA caching allocator, docs/decisions/): requests are rounded up to 512 B; a request up to
// 1 MiB comes from 2 MiB segments, one below 10 MiB from 20 MiB segments, a larger one from a segment of its own size
// rounded up to 2 MiB; the smallest free block that fits is taken (ties: the lowest address), and split when what is left is
// at least 512 B (small) or more than 1 MiB (large); a freed block merges with its free neighbours. Segments are kept.
//
//   CachingAllocator allocator(&source);
//   WT_ASSIGN_OR_RETURN(Allocation a, allocator.Allocate(MiB(3)));
//   …
//   allocator.Free(a);
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace windtunnel {

// Where segments come from. Addresses only need to be distinct, aligned to 512 B and at least `bytes` apart.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  // Failed when the memory is exhausted.
  virtual Result<uint64_t> Reserve(Bytes bytes) = 0;
};

// Hands out addresses without memory behind them, up to a capacity.
class VirtualSegmentSource : public SegmentSource {
 public:
  explicit VirtualSegmentSource(Bytes capacity = Bytes(INT64_MAX)) : capacity_(capacity) {}
  Result<uint64_t> Reserve(Bytes bytes) override;

 private:
  Bytes capacity_;
  Bytes used_;
  uint64_t next_ = 1ULL << 40;
};

struct Allocation {
  uint64_t address = 0;
  Bytes bytes;  // rounded
};

class CachingAllocator {
 public:
  explicit CachingAllocator(SegmentSource* source) : source_(source) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  Result<Allocation> Allocate(Bytes bytes);  // REQUIRES: bytes >= 0; zero bytes take one block of 512
  void Free(const Allocation& allocation);   // REQUIRES: from Allocate, not freed before

  Bytes allocated() const { return allocated_; }
  Bytes reserved() const { return reserved_; }
  Bytes peak_allocated() const { return peak_allocated_; }
  Bytes peak_reserved() const { return peak_reserved_; }
  void ResetPeaks() {
    peak_allocated_ = allocated_;
    peak_reserved_ = reserved_;
  }

 private:
  enum class Pool : uint8_t { kSmall, kLarge };
  struct Block {
    Bytes bytes;
    Pool pool;
    bool free;
    uint64_t previous, next;  // neighbours within the segment; 0: none
  };
  using FreeKey = std::pair<Bytes, uint64_t>;  // smallest first, then the lowest address

  std::set<FreeKey>& FreeBlocks(Pool pool) { return free_[static_cast<int>(pool)]; }
  void Split(uint64_t address, Bytes bytes);
  uint64_t MergeWithNext(uint64_t address);

  SegmentSource* source_;
  std::map<uint64_t, Block> blocks_;
  std::set<FreeKey> free_[2];
  Bytes allocated_, reserved_, peak_allocated_, peak_reserved_;
};

}  // namespace windtunnel
