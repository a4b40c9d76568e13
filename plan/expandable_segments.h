// PyTorch's expandable segments: one range of addresses per pool and stream, into which memory is mapped page
// by page as needed. A request can grow from the free block before unmapped addresses, and whole free pages
// can be unmapped.
//
//   ExpandableSegments segments(&source, &blocks);
//   BlockPlace place = segments.BestFit(pool, MiB(3));  // 0: memory has to be mapped
//   WT_ASSIGN_OR_RETURN(place, segments.Grow(pool, MiB(3)));
//   segments.UnmapFreePages(pool);
//
// Facts from PyTorch's CUDACachingAllocator.cpp (2.x), as in plan/pytorch_allocator.h. A page has 2 MiB in
// the small pool and 20 MiB in the large one.
#pragma once

#include <set>

#include "base/result.h"
#include "base/units.h"
#include "plan/memory_blocks.h"
#include "plan/segment_source.h"

namespace windtunnel {

class ExpandableSegments {
 public:
  ExpandableSegments(SegmentSource* source, MemoryBlocks* blocks) : source_(source), blocks_(*blocks) {}

  // As MemoryBlocks::BestFit, but unmapped addresses behind a block count as part of it: the block at the
  // growing end is taken last, since with them it is as large as the device.
  BlockPlace BestFit(PoolKey pool, Bytes bytes) const;
  // Maps pages at the lowest place where free and unmapped blocks together have `bytes`, and returns the free
  // block. Failed: memory has run out; pages that were mapped before stay mapped, and free.
  Result<BlockPlace> Grow(PoolKey pool, Bytes bytes);
  // Unmaps the pages that lie wholly within free blocks of the pool.
  void UnmapFreePages(PoolKey pool);

  Bytes mapped() const { return mapped_; }

 private:
  BlockPlace PlaceToGrow(PoolKey pool, Bytes bytes) const;
  bool HasRoom(BlockPlace place, Bytes bytes) const;
  Result<BlockPlace> NewSegment(PoolKey pool, Bytes request);
  Result<BlockPlace> MapFirst(BlockPlace unmapped, Bytes bytes);
  void UnmapWithin(BlockPlace free);

  SegmentSource* source_;
  MemoryBlocks& blocks_;
  std::set<BlockPlace> segments_;  // their first places
  Bytes mapped_;
};

}  // namespace windtunnel
