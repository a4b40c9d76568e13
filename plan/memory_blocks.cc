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

BlockPlace MemoryBlocks::AddSegment(uint64_t address, Bytes bytes, PoolKey pool, BlockState state) {
  const BlockPlace place = next_place_;
  next_place_ += static_cast<BlockPlace>(bytes.count());
  Entry& block = blocks_[place];
  block.place = place;
  block.address = address;
  block.bytes = bytes;
  block.pool = pool;
  block.state = state;
  block.of = &pools_[pool];
  Index(block);
  return place;
}

void MemoryBlocks::RemoveSegment(BlockPlace place) {
  Entry& block = blocks_.at(place);
  WT_CHECK(block.state == BlockState::kFree && block.previous == 0 && block.next == 0);
  Unindex(block);
  blocks_.erase(place);
}

BlockPlace MemoryBlocks::BestFit(PoolKey pool, Bytes bytes) const {
  const FreeSet& free = FreeOf(pool);
  const auto fit = free.lower_bound({bytes, 0});
  return fit == free.end() ? 0 : fit->place;
}

const MemoryBlock& MemoryBlocks::Use(BlockPlace place, Bytes bytes) {
  Entry& block = blocks_.at(place);
  WT_CHECK(block.state == BlockState::kFree && bytes <= block.bytes);
  Unindex(block);
  if (bytes < block.bytes) Index(CutOff(block, bytes));
  block.state = BlockState::kUsed;
  return block;
}

void MemoryBlocks::Split(BlockPlace place, Bytes bytes) {
  Entry& block = blocks_.at(place);
  WT_CHECK(bytes > Bytes(0) && bytes < block.bytes);
  Unindex(block);
  Index(CutOff(block, bytes));
  Index(block);
}

MemoryBlocks::Entry& MemoryBlocks::CutOff(Entry& block, Bytes bytes) {
  const auto count = static_cast<uint64_t>(bytes.count());
  Entry& rest = blocks_[block.place + count];
  rest.place = block.place + count;
  rest.address = block.address + count;
  rest.bytes = block.bytes - bytes;
  rest.pool = block.pool;
  rest.of = block.of;
  rest.state = block.state;
  rest.previous = block.place;
  rest.next = block.next;
  if (block.next != 0) blocks_.at(block.next).previous = rest.place;
  block.next = rest.place;
  block.bytes = bytes;
  return rest;
}

BlockPlace MemoryBlocks::SetState(BlockPlace place, BlockState state) {
  Entry* block = &blocks_.at(place);
  Unindex(*block);
  block->state = state;
  // The neighbour if the block is to merge with it, else null. It is not indexed then.
  const auto joined = [&](BlockPlace neighbour) -> Entry* {
    if (neighbour == 0) return nullptr;
    Entry& other = blocks_.at(neighbour);
    if (other.state != state) return nullptr;
    Unindex(other);
    return &other;
  };
  if (state == BlockState::kFree || state == BlockState::kUnmapped) {
    if (joined(block->next) != nullptr) MergeWithNext(*block);
    if (Entry* const previous = joined(block->previous)) {
      block = previous;
      MergeWithNext(*block);
    }
  }
  Index(*block);
  return block->place;
}

void MemoryBlocks::MergeWithNext(Entry& block) {
  const auto merged = blocks_.find(block.next);
  const Entry& next = merged->second;
  block.bytes += next.bytes;
  block.next = next.next;
  if (next.next != 0) blocks_.at(next.next).previous = block.place;
  blocks_.erase(merged);
}

std::vector<PoolKey> MemoryBlocks::pools() const {
  std::vector<PoolKey> keys;
  for (const auto& [key, pool] : pools_) keys.push_back(key);
  return keys;
}

const MemoryBlocks::FreeSet& MemoryBlocks::FreeOf(PoolKey pool) const {
  static const FreeSet kNone;
  const auto found = pools_.find(pool);
  return found == pools_.end() ? kNone : found->second.free;
}

const std::set<BlockPlace>& MemoryBlocks::UnmappedOf(PoolKey pool) const {
  static const std::set<BlockPlace> kNone;
  const auto found = pools_.find(pool);
  return found == pools_.end() ? kNone : found->second.unmapped;
}

void MemoryBlocks::Index(Entry& block) {
  if (block.state == BlockState::kFree) block.of->free.insert(block);
  if (block.state == BlockState::kUnmapped) block.of->unmapped.insert(block.place);
}

void MemoryBlocks::Unindex(Entry& block) {
  if (block.state == BlockState::kFree) block.of->free.erase(FreeSet::s_iterator_to(block));
  if (block.state == BlockState::kUnmapped) block.of->unmapped.erase(block.place);
}

}  // namespace windtunnel
