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

void MemoryBlocks::AddSegment(uint64_t address, Bytes bytes, PoolKey pool, BlockState state) {
  const bool added = blocks_.emplace(address, MemoryBlock{bytes, pool, state, 0, 0}).second;
  WT_CHECK(added);
  Index(address);
}

void MemoryBlocks::RemoveSegment(uint64_t address) {
  const MemoryBlock& block = at(address);
  WT_CHECK(block.state == BlockState::kFree && block.previous == 0 && block.next == 0);
  Unindex(address);
  blocks_.erase(address);
}

uint64_t MemoryBlocks::BestFit(PoolKey pool, Bytes bytes) const {
  const FreeSet& free = FreeOf(pool);
  auto fit = free.lower_bound(FreeBlock{bytes, 0});
  return fit == free.end() ? 0 : fit->address;
}

void MemoryBlocks::Split(uint64_t address, Bytes bytes) {
  MemoryBlock& block = blocks_.at(address);
  WT_CHECK(bytes > Bytes(0) && bytes < block.bytes);
  Unindex(address);
  const uint64_t rest = address + static_cast<uint64_t>(bytes.count());
  blocks_[rest] = MemoryBlock{block.bytes - bytes, block.pool, block.state, address, block.next};
  if (block.next != 0) blocks_.at(block.next).previous = rest;
  block.next = rest;
  block.bytes = bytes;
  Index(address);
  Index(rest);
}

uint64_t MemoryBlocks::SetState(uint64_t address, BlockState state) {
  Unindex(address);
  MemoryBlock& block = blocks_.at(address);
  block.state = state;
  auto joins = [&](uint64_t neighbour) { return neighbour != 0 && at(neighbour).state == state; };
  if (state == BlockState::kFree || state == BlockState::kUnmapped) {
    if (joins(block.next)) {
      Unindex(block.next);
      MergeWithNext(address);
    }
    if (joins(block.previous)) {
      address = block.previous;
      Unindex(address);
      MergeWithNext(address);
    }
  }
  Index(address);
  return address;
}

void MemoryBlocks::MergeWithNext(uint64_t address) {
  MemoryBlock& block = blocks_.at(address);
  const uint64_t merged = block.next;
  const MemoryBlock& next = at(merged);
  block.bytes += next.bytes;
  block.next = next.next;
  if (next.next != 0) blocks_.at(next.next).previous = address;
  blocks_.erase(merged);
}

const MemoryBlocks::FreeSet& MemoryBlocks::FreeOf(PoolKey pool) const {
  static const FreeSet kNone;
  auto found = free_.find(pool);
  return found == free_.end() ? kNone : found->second;
}

const std::set<uint64_t>& MemoryBlocks::UnmappedOf(PoolKey pool) const {
  static const std::set<uint64_t> kNone;
  auto found = unmapped_.find(pool);
  return found == unmapped_.end() ? kNone : found->second;
}

void MemoryBlocks::Index(uint64_t address) {
  const MemoryBlock& block = at(address);
  if (block.state == BlockState::kFree) free_[block.pool].insert({block.bytes, address});
  if (block.state == BlockState::kUnmapped) unmapped_[block.pool].insert(address);
}

void MemoryBlocks::Unindex(uint64_t address) {
  const MemoryBlock& block = at(address);
  if (block.state == BlockState::kFree) free_[block.pool].erase({block.bytes, address});
  if (block.state == BlockState::kUnmapped) unmapped_[block.pool].erase(address);
}

}  // namespace windtunnel
