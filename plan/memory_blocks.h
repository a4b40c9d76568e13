// The bookkeeping that both allocators share: segments of memory cut into blocks, the free blocks in best-fit
// order, and the sizes that both policies have in common.
//
//   blocks.AddSegment(address, MiB(20), {stream, PoolSize::kLarge}, BlockState::kFree);
//   BlockPlace place = blocks.BestFit({stream, PoolSize::kLarge}, MiB(3));  // 0: no free block is that large
//   blocks.Use(place, MiB(3));                                        // the rest stays free
//   blocks.SetState(place, BlockState::kFree);
#pragma once

#include <boost/intrusive/set.hpp>
#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "plan/step_program.h"

namespace windtunnel {

// Requests are rounded up to multiples of 512 B.
inline constexpr Bytes kBlockRounding(512);
Bytes RoundedRequest(Bytes bytes);  // at least 512 B

// A request of up to 1 MiB (rounded) belongs to the small pool.
enum class PoolSize : uint8_t { kSmall, kLarge };
inline constexpr Bytes kLargestSmallRequest = MiB(1);
PoolSize PoolSizeOf(Bytes rounded);

// The size of the segment that is reserved for a request when no free block fits: 2 MiB for the small pool,
// 20 MiB for a request below 10 MiB, otherwise the request rounded up to 2 MiB.
inline constexpr Bytes kSmallSegment = MiB(2), kMediumSegment = MiB(20);
Bytes SegmentFor(Bytes rounded);
// Whether the rest of a block is split off: at least 512 B in the small pool, more than 1 MiB in the large.
bool IsWorthSplitting(PoolSize pool, Bytes rest);

// The stream that a block is allocated for; `apart`: from the stream's second pool (MemoryOp::apart).
struct MemoryOwner {
  StreamId stream = kComputeStream;
  bool apart = false;
  auto operator<=>(const MemoryOwner&) const = default;
};

// Free blocks serve one pool only.
struct PoolKey {
  MemoryOwner owner;
  PoolSize size = PoolSize::kSmall;
  auto operator<=>(const PoolKey&) const = default;
};

// A block's position in the order of segments (as reserved) and of addresses within a segment. Choices depend
// on places, never on addresses, so they are the same wherever the memory lies. 0: no block.
using BlockPlace = uint64_t;

enum class BlockState : uint8_t {
  kUsed,
  kPending,  // freed, but a stream may still be using it
  kFree,
  kUnmapped,  // addresses of an expandable segment that have no memory behind them
};

// Blocks are linked into the order of their pool's free ones.
struct MemoryBlock
    : boost::intrusive::set_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>> {
  BlockPlace place = 0;
  uint64_t address = 0;
  Bytes bytes;
  PoolKey pool;
  BlockState state = BlockState::kFree;
  BlockPlace previous = 0, next = 0;  // neighbours within the segment
};

class MemoryBlocks {
 public:
  // Smallest first, then the lowest place.
  struct BySize {
    using type = std::pair<Bytes, BlockPlace>;
    type operator()(const MemoryBlock& block) const { return {block.bytes, block.place}; }
  };
  // Linked through the blocks: nothing is allocated for it, and a block is taken out without a search.
  using FreeSet = boost::intrusive::set<MemoryBlock, boost::intrusive::key_of_value<BySize>>;

  BlockPlace AddSegment(uint64_t address, Bytes bytes, PoolKey pool, BlockState state);
  // REQUIRES: a free block without neighbours.
  void RemoveSegment(BlockPlace place);

  // REQUIRES: the place of a block, as everywhere below.
  const MemoryBlock& at(BlockPlace place) const { return blocks_.at(place); }
  // The smallest free block of at least `bytes` (ties: the lowest place); 0 when there is none.
  BlockPlace BestFit(PoolKey pool, Bytes bytes) const;
  // The first `bytes` of a free block become a used one; the rest, if there is any, stays free.
  const MemoryBlock& Use(BlockPlace place, Bytes bytes);
  // Cuts a block in two of the same state, the first of `bytes`. REQUIRES: 0 < bytes < the block's.
  void Split(BlockPlace place, Bytes bytes);
  // Free and unmapped blocks merge with neighbours of the same state. Returns the resulting block's place.
  BlockPlace SetState(BlockPlace place, BlockState state);

  // All pools that have had a block, in order.
  std::vector<PoolKey> pools() const;
  // The free blocks of one pool, and its unmapped ones; empty if there are none.
  const FreeSet& FreeOf(PoolKey pool) const;
  const std::set<BlockPlace>& UnmappedOf(PoolKey pool) const;

 private:
  struct Pool {
    FreeSet free;
    std::set<BlockPlace> unmapped;
  };
  struct Entry : MemoryBlock {
    Pool* of = nullptr;  // its pool
  };

  static void Index(Entry& block);
  static void Unindex(Entry& block);
  // Cuts off what is behind the first `bytes`. REQUIRES: not indexed. Returns the rest, not indexed either.
  Entry& CutOff(Entry& block, Bytes bytes);
  void MergeWithNext(Entry& block);  // REQUIRES: neither is indexed

  std::unordered_map<BlockPlace, Entry> blocks_;
  std::map<PoolKey, Pool> pools_;
  BlockPlace next_place_ = 1;
};

}  // namespace windtunnel
