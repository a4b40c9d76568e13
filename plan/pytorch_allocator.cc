#include "plan/pytorch_allocator.h"

#include "base/check.h"

namespace windtunnel {
namespace {

// The result of a request of no bytes. Its address is arbitrary but not null.
constexpr Allocation kNothing{static_cast<uint64_t>(kBlockRounding.count()), Bytes(0), 0};

}  // namespace

PytorchAllocator::PytorchAllocator(SegmentSource* source, const Options& options)
    : source_(source), options_(options) {
  if (options.expandable) expandable_.emplace(source, &blocks_);
}

Result<Allocation> PytorchAllocator::Take(Bytes bytes, MemoryOwner owner) {
  if (bytes == Bytes(0)) return kNothing;
  const Bytes rounded = RoundedRequest(bytes);
  const PoolKey pool{owner, PoolSizeOf(rounded)};
  BlockPlace place = expandable_ ? expandable_->BestFit(pool, rounded) : blocks_.BestFit(pool, rounded);
  if (place == 0) {
    NoteUnserved(rounded);
    auto reserved = Reserve(pool, rounded);
    if (!reserved) {
      NoteRetry();
      ReleaseCached();
      reserved = Reserve(pool, rounded);
    }
    if (!reserved) return tl::unexpected(std::move(reserved).error());
    place = *reserved;
  }
  const Bytes whole = blocks_.at(place).bytes;
  const MemoryBlock& used = blocks_.Use(place, SplitsOff(pool.size, whole - rounded) ? rounded : whole);
  return Allocation{used.address, used.bytes, place};
}

bool PytorchAllocator::SplitsOff(PoolSize pool, Bytes rest) const {
  return expandable_ ? rest >= kBlockRounding : IsWorthSplitting(pool, rest);
}

// Reserves memory and returns a free block in it of at least `rounded`.
Result<BlockPlace> PytorchAllocator::Reserve(PoolKey pool, Bytes rounded) {
  if (expandable_) {
    const Bytes before = expandable_->mapped();
    auto place = expandable_->Grow(pool, rounded);
    NoteReserved(expandable_->mapped() - before);  // also if Grow failed
    return place;
  }
  const Bytes segment = SegmentFor(rounded);
  WT_ASSIGN_OR_RETURN(const uint64_t address, source_->Reserve(segment));
  NoteReserved(segment);
  return blocks_.AddSegment(address, segment, pool, BlockState::kFree);
}

void PytorchAllocator::GiveBack(const Allocation& allocation, MemoryEvent until) {
  if (allocation.place == 0) return;
  WT_CHECK(blocks_.at(allocation.place).state == BlockState::kUsed);
  if (until == kNow) {
    blocks_.SetState(allocation.place, BlockState::kFree);
    return;
  }
  blocks_.SetState(allocation.place, BlockState::kPending);
  pending_[until] = allocation.place;
}

void PytorchAllocator::Complete(MemoryEvent event) {
  auto found = pending_.find(event);
  if (found == pending_.end()) return;
  blocks_.SetState(found->second, BlockState::kFree);
  pending_.erase(found);
}

void PytorchAllocator::ReleaseCached() {
  if (options_.can_wait) {
    while (!pending_.empty()) Complete(pending_.begin()->first);
  }
  for (const PoolKey pool : blocks_.pools()) {
    if (!expandable_) {
      ReleaseFreeSegments(pool);
      continue;
    }
    const Bytes before = expandable_->mapped();
    expandable_->UnmapFreePages(pool);
    NoteReserved(expandable_->mapped() - before);
  }
}

void PytorchAllocator::ReleaseFreeSegments(PoolKey pool) {
  const MemoryBlocks::FreeSet& free = blocks_.FreeOf(pool);
  for (auto next = free.begin(); next != free.end();) {
    const MemoryBlock& block = *next++;
    if (block.previous != 0 || block.next != 0) continue;
    source_->Release(block.address, block.bytes);
    NoteReserved(Bytes(0) - block.bytes);
    blocks_.RemoveSegment(block.place);
  }
}

}  // namespace windtunnel
