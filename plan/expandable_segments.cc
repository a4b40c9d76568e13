#include "plan/expandable_segments.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/check.h"

namespace windtunnel {
namespace {

// PyTorch reserves addresses for 9/8 of the device's memory. The source need not know that size here: any
// range that no device fills serves as well. (A request may be larger than any device, to find out that it
// does not fit.)
constexpr Bytes kAddresses = GiB(1024);

Bytes PageOf(PoolKey pool) { return pool.size == PoolSize::kSmall ? kSmallSegment : kMediumSegment; }

}  // namespace

BlockPlace ExpandableSegments::BestFit(PoolKey pool, Bytes bytes) const {
  const MemoryBlocks::FreeSet& free = blocks_.FreeOf(pool);
  auto fit = free.lower_bound({bytes, 0});
  if (fit == free.end()) return 0;
  auto room = [&](const MemoryBlock& block) {
    const bool grows = block.next != 0 && blocks_.at(block.next).state == BlockState::kUnmapped;
    return grows ? block.bytes + blocks_.at(block.next).bytes : block.bytes;
  };
  for (auto next = std::next(fit); next != free.end() && room(*next) < room(*fit); ++next) fit = next;
  return fit->place;
}

Result<BlockPlace> ExpandableSegments::Grow(PoolKey pool, Bytes bytes) {
  BlockPlace place = PlaceToGrow(pool, bytes);
  if (place == 0) {
    WT_ASSIGN_OR_RETURN(place, NewSegment(pool, bytes));
  }
  if (blocks_.at(place).state == BlockState::kUnmapped) {
    WT_ASSIGN_OR_RETURN(place, MapFirst(place, bytes));
  }
  while (blocks_.at(place).bytes < bytes) {
    WT_ASSIGN_OR_RETURN(place, MapFirst(blocks_.at(place).next, bytes - blocks_.at(place).bytes));
  }
  return place;
}

// The lowest place with enough room: an unmapped block, or the free block before it.
BlockPlace ExpandableSegments::PlaceToGrow(PoolKey pool, Bytes bytes) const {
  for (BlockPlace unmapped : blocks_.UnmappedOf(pool)) {
    const BlockPlace before = blocks_.at(unmapped).previous;
    const bool extends = before != 0 && blocks_.at(before).state == BlockState::kFree;
    const BlockPlace start = extends ? before : unmapped;
    if (HasRoom(start, bytes)) return start;
  }
  return 0;
}

bool ExpandableSegments::HasRoom(BlockPlace place, Bytes bytes) const {
  Bytes room;
  while (place != 0 && room < bytes) {
    const MemoryBlock& block = blocks_.at(place);
    if (block.state != BlockState::kFree && block.state != BlockState::kUnmapped) return false;
    room += block.bytes;
    place = block.next;
  }
  return room >= bytes;
}

Result<BlockPlace> ExpandableSegments::NewSegment(PoolKey pool, Bytes request) {
  const Bytes addresses = std::max(kAddresses, request).RoundedUpTo(PageOf(pool));
  WT_ASSIGN_OR_RETURN(const uint64_t address, source_->ReserveAddresses(addresses));
  const BlockPlace place = blocks_.AddSegment(address, addresses, pool, BlockState::kUnmapped);
  segments_.insert(place);
  return place;
}

// Maps the pages of an unmapped block's first `bytes` (of all of it, if it has less). They merge with free
// ones beside.
Result<BlockPlace> ExpandableSegments::MapFirst(BlockPlace unmapped, Bytes bytes) {
  const MemoryBlock& block = blocks_.at(unmapped);
  WT_CHECK(block.state == BlockState::kUnmapped);
  const Bytes pages = std::min(bytes.RoundedUpTo(PageOf(block.pool)), block.bytes);
  WT_RETURN_IF_ERROR(source_->Map(block.address, pages));
  mapped_ += pages;
  if (pages < block.bytes) blocks_.Split(unmapped, pages);
  return blocks_.SetState(unmapped, BlockState::kFree);
}

void ExpandableSegments::UnmapFreePages(PoolKey pool) {
  const MemoryBlocks::FreeSet& free = blocks_.FreeOf(pool);
  std::vector<BlockPlace> places;  // unmapping changes the set
  for (const MemoryBlock& block : free) places.push_back(block.place);
  for (BlockPlace place : places) UnmapWithin(place);
}

void ExpandableSegments::UnmapWithin(BlockPlace free) {
  const MemoryBlock block = blocks_.at(free);
  const Bytes page = PageOf(block.pool);
  const BlockPlace segment = *std::prev(segments_.upper_bound(free));
  const Bytes offset(static_cast<int64_t>(free - segment));
  const Bytes before = offset.RoundedUpTo(page) - offset;  // part of a page that the block before uses too
  const int64_t pages = (block.bytes - before).count() / page.count();
  if (before >= block.bytes || pages == 0) return;
  BlockPlace first = free;
  if (before > Bytes(0)) {
    blocks_.Split(free, before);
    first = blocks_.at(free).next;
  }
  if (page * pages < blocks_.at(first).bytes) blocks_.Split(first, page * pages);
  source_->Unmap(blocks_.at(first).address, page * pages);
  mapped_ -= page * pages;
  blocks_.SetState(first, BlockState::kUnmapped);
}

}  // namespace windtunnel
