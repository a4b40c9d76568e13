#include "plan/memory_blocks.h"

#include <algorithm>

#include "base/check.h"

namespace windtunnel {
namespace {

constexpr Bytes kMediumLimit = MiB(10);
constexpr Bytes kSegmentRounding = MiB(2);

}  // namespace

Bytes RoundedRequest(Bytes bytes) { return std::max(bytes.RoundedUpTo(kBlockRounding), kBlockRounding); }

PoolSize PoolSizeOf(Bytes rounded) {
  return rounded <= kLargestSmallRequest ? PoolSize::kSmall : PoolSize::kLarge;
}

Bytes SegmentFor(Bytes rounded) {
  if (PoolSizeOf(rounded) == PoolSize::kSmall) return kSmallSegment;
  if (rounded < kMediumLimit) return kMediumSegment;
  return rounded.RoundedUpTo(kSegmentRounding);
}

bool IsWorthSplitting(PoolSize pool, Bytes rest) {
  return pool == PoolSize::kSmall ? rest >= kBlockRounding : rest > kLargestSmallRequest;
}

Place MemoryBlocks::AddSegment(uint64_t address, Bytes bytes, PoolKey pool, BlockState state) {
  const Place place = next_place_;
  next_place_ += static_cast<Place>(bytes.count());
  blocks_.emplace(place, MemoryBlock{address, bytes, pool, state, 0, 0});
  Index(place);
  return place;
}

void MemoryBlocks::RemoveSegment(Place place) {
  const MemoryBlock& block = at(place);
  WT_CHECK(block.state == BlockState::kFree && block.previous == 0 && block.next == 0);
  Unindex(place);
  blocks_.erase(place);
}

Place MemoryBlocks::BestFit(PoolKey pool, Bytes bytes) const {
  const FreeSet& free = FreeOf(pool);
  auto fit = free.lower_bound(FreeBlock{bytes, 0});
  return fit == free.end() ? 0 : fit->place;
}

void MemoryBlocks::Split(Place place, Bytes bytes) {
  MemoryBlock& block = blocks_.at(place);
  WT_CHECK(bytes > Bytes(0) && bytes < block.bytes);
  Unindex(place);
  const uint64_t count = static_cast<uint64_t>(bytes.count());
  const Place rest = place + count;
  blocks_[rest] =
      MemoryBlock{block.address + count, block.bytes - bytes, block.pool, block.state, place, block.next};
  if (block.next != 0) blocks_.at(block.next).previous = rest;
  block.next = rest;
  block.bytes = bytes;
  Index(place);
  Index(rest);
}

Place MemoryBlocks::SetState(Place place, BlockState state) {
  Unindex(place);
  MemoryBlock& block = blocks_.at(place);
  block.state = state;
  auto joins = [&](Place neighbour) { return neighbour != 0 && at(neighbour).state == state; };
  if (state == BlockState::kFree || state == BlockState::kUnmapped) {
    if (joins(block.next)) {
      Unindex(block.next);
      MergeWithNext(place);
    }
    if (joins(block.previous)) {
      place = block.previous;
      Unindex(place);
      MergeWithNext(place);
    }
  }
  Index(place);
  return place;
}

void MemoryBlocks::MergeWithNext(Place place) {
  MemoryBlock& block = blocks_.at(place);
  const Place merged = block.next;
  const MemoryBlock& next = at(merged);
  block.bytes += next.bytes;
  block.next = next.next;
  if (next.next != 0) blocks_.at(next.next).previous = place;
  blocks_.erase(merged);
}

const MemoryBlocks::FreeSet& MemoryBlocks::FreeOf(PoolKey pool) const {
  static const FreeSet kNone;
  auto found = free_.find(pool);
  return found == free_.end() ? kNone : found->second;
}

const std::set<Place>& MemoryBlocks::UnmappedOf(PoolKey pool) const {
  static const std::set<Place> kNone;
  auto found = unmapped_.find(pool);
  return found == unmapped_.end() ? kNone : found->second;
}

void MemoryBlocks::Index(Place place) {
  const MemoryBlock& block = at(place);
  if (block.state == BlockState::kFree) free_[block.pool].insert({block.bytes, place});
  if (block.state == BlockState::kUnmapped) unmapped_[block.pool].insert(place);
}

void MemoryBlocks::Unindex(Place place) {
  const MemoryBlock& block = at(place);
  if (block.state == BlockState::kFree) free_[block.pool].erase({block.bytes, place});
  if (block.state == BlockState::kUnmapped) unmapped_[block.pool].erase(place);
}

}  // namespace windtunnel
