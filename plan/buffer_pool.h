// A role's buffers over the caching allocator: what Alloc and Free operators do, in both executors, with the peak and what it
// consisted of.
#pragma once

#include <vector>

#include "base/result.h"
#include "plan/allocator.h"
#include "plan/step_program.h"
#include "plan/timeline.h"

namespace windtunnel {

class BufferPool {
 public:
  // `buffers` must outlive the pool.
  BufferPool(const std::vector<Buffer>& buffers, SegmentSource* source)
      : buffers_(buffers), allocator_(source), allocations_(buffers.size()) {}

  // Failed (out of memory): names the buffer, its size and the largest buffers alive.
  Status Alloc(BufferId id);
  void Free(BufferId id);  // REQUIRES: allocated

  bool alive(BufferId id) const { return allocations_[id].address != 0; }
  uint64_t address(BufferId id) const { return allocations_[id].address; }
  Bytes allocated() const { return allocator_.allocated(); }
  Bytes reserved() const { return allocator_.reserved(); }

  // The peak since the last ResetPeak. by_category is that of the moment of the allocated peak.
  const MemoryPeak& peak() const { return peak_; }
  void ResetPeak();

  // Ids of the `count` largest buffers alive, largest first.
  std::vector<BufferId> Largest(int count) const;

 private:
  void NotePeak();

  const std::vector<Buffer>& buffers_;
  CachingAllocator allocator_;
  std::vector<Allocation> allocations_;
  Bytes by_category_[kCategories];
  MemoryPeak peak_;
};

}  // namespace windtunnel
