// PyTorch's caching allocator for CUDA, as a policy: what it would reserve for a program, and where it would
// run out of memory. Facts are from c10/cuda/CUDACachingAllocator.cpp with its default settings.
// plan/allocator.h has the rules that it shares with Windtunnel's allocator. Its own:
//
// 1. A block belongs to the stream that it was allocated for and serves no other.
// 2. A freed block that another stream was recorded on (Tensor.record_stream) is reusable when that stream's
//    work is known to be done. PyTorch polls; here the host knows only what it has waited for (HostWait, the
//    end of a program), which is what PyTorch sees when the host is far ahead of the device.
// 3. When a segment cannot be reserved, the allocator waits for what is pending, gives back every segment
// that is wholly free, and
//    tries once more; then it fails.
// 4. A request of no bytes takes no memory.
// 5. Expandable segments (plan/expandable_segments.h): memory is mapped by pages, any rest of at least 512 B
// is split off, and rule 3
//    takes back free pages.
//
// Not modelled, since they are off by default: max_split_size_mb, roundup_power2_divisions,
// garbage_collection_threshold and per_process_memory_fraction.
#pragma once

#include <map>
#include <optional>

#include "plan/allocator.h"
#include "plan/expandable_segments.h"

namespace windtunnel {

class PytorchAllocator : public Allocator {
 public:
  struct Options {
    bool expandable = false;
    // Rule 3 waits for pending blocks. False if real work on them may be under way that the allocator cannot
    // wait for: they stay pending.
    bool can_wait = true;
  };
  PytorchAllocator(SegmentSource* source, const Options& options);

  void Complete(MemoryEvent event) override;

 private:
  Result<Allocation> Take(Bytes bytes, MemoryOwner owner) override;
  void GiveBack(const Allocation& allocation, MemoryEvent until) override;

  Result<BlockPlace> Reserve(PoolKey pool, Bytes rounded);
  void ReleaseCached();
  void ReleaseFreeSegments(PoolKey pool);
  bool SplitsOff(PoolSize pool, Bytes rest) const;

  SegmentSource* source_;
  Options options_;
  MemoryBlocks blocks_;
  std::optional<ExpandableSegments> expandable_;
  std::map<MemoryEvent, BlockPlace> pending_;
};

}  // namespace windtunnel
