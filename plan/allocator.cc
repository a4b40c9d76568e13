#include "plan/allocator.h"

#include "base/check.h"

namespace windtunnel {
namespace {

constexpr Bytes kRounding(512);
constexpr Bytes kSmallLimit = MiB(1);
constexpr Bytes kSmallSegment = MiB(2);
constexpr Bytes kMediumLimit = MiB(10);
constexpr Bytes kMediumSegment = MiB(20);

Bytes Rounded(Bytes bytes) { return bytes < kRounding ? kRounding : bytes.RoundedUpTo(kRounding); }

Bytes SegmentFor(Bytes rounded) {
  if (rounded <= kSmallLimit) return kSmallSegment;
  if (rounded < kMediumLimit) return kMediumSegment;
  return rounded.RoundedUpTo(MiB(2));
}

}  // namespace

Result<uint64_t> VirtualSegmentSource::Reserve(Bytes bytes) {
  if (bytes > capacity_ - used_) {
    return Failed("out of device memory: {} B asked for, {} B of {} B reserved", bytes.count(), used_.count(),
                  capacity_.count());
  }
  used_ += bytes;
  uint64_t address = next_;
  next_ += static_cast<uint64_t>(bytes.RoundedUpTo(MiB(2)).count());
  return address;
}

Result<Allocation> CachingAllocator::Allocate(Bytes bytes) {
  const Bytes rounded = Rounded(bytes);
  const Pool pool = rounded <= kSmallLimit ? Pool::kSmall : Pool::kLarge;
  auto& free = FreeBlocks(pool);
  auto fit = free.lower_bound(FreeKey{rounded, 0});
  if (fit == free.end()) {
    const Bytes segment = SegmentFor(rounded);
    WT_ASSIGN_OR_RETURN(uint64_t address, source_->Reserve(segment));
    blocks_[address] = Block{segment, pool, true, 0, 0};
    reserved_ += segment;
    if (reserved_ > peak_reserved_) peak_reserved_ = reserved_;
    fit = free.insert({segment, address}).first;
  }
  const uint64_t address = fit->second;
  free.erase(fit);
  Split(address, rounded);
  Block& block = blocks_.at(address);
  block.free = false;
  allocated_ += block.bytes;
  if (allocated_ > peak_allocated_) peak_allocated_ = allocated_;
  return Allocation{address, block.bytes};
}

// Cuts the (detached) block at `address` to `bytes` where the rest is worth keeping.
void CachingAllocator::Split(uint64_t address, Bytes bytes) {
  Block& block = blocks_.at(address);
  const Bytes rest = block.bytes - bytes;
  const bool worth_it = block.pool == Pool::kSmall ? rest >= kRounding : rest > kSmallLimit;
  if (!worth_it) return;
  const uint64_t rest_address = address + static_cast<uint64_t>(bytes.count());
  blocks_[rest_address] = Block{rest, block.pool, true, address, block.next};
  if (block.next != 0) blocks_.at(block.next).previous = rest_address;
  block.next = rest_address;
  block.bytes = bytes;
  FreeBlocks(block.pool).insert({rest, rest_address});
}

void CachingAllocator::Free(const Allocation& allocation) {
  auto found = blocks_.find(allocation.address);
  WT_CHECK(found != blocks_.end() && !found->second.free);
  allocated_ -= found->second.bytes;
  found->second.free = true;
  uint64_t address = allocation.address;
  MergeWithNext(address);
  const uint64_t previous = blocks_.at(address).previous;
  if (previous != 0 && blocks_.at(previous).free) {
    FreeBlocks(blocks_.at(previous).pool).erase({blocks_.at(previous).bytes, previous});
    address = MergeWithNext(previous);
  }
  const Block& block = blocks_.at(address);
  FreeBlocks(block.pool).insert({block.bytes, address});
}

// Takes the next block into the one at `address` when it is free; returns `address`.
uint64_t CachingAllocator::MergeWithNext(uint64_t address) {
  Block& block = blocks_.at(address);
  if (block.next == 0) return address;
  const uint64_t next_address = block.next;
  const Block next = blocks_.at(next_address);
  if (!next.free) return address;
  FreeBlocks(next.pool).erase({next.bytes, next_address});
  block.bytes += next.bytes;
  block.next = next.next;
  if (next.next != 0) blocks_.at(next.next).previous = address;
  blocks_.erase(next_address);
  return address;
}

}  // namespace windtunnel
