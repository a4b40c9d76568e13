#include "plan/buffer_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/format.h"

namespace windtunnel {

Status BufferPool::Alloc(BufferId id) {
  WT_CHECK(!alive(id));
  auto allocation = allocator_.Allocate(buffers_[id].bytes);
  if (!allocation) {
    std::string holders;
    for (BufferId holder : Largest(3)) {
      holders += fmt::format("{}{} ({})", holders.empty() ? "" : ", ", buffers_[holder].name,
                             FormatBytes(buffers_[holder].bytes));
    }
    return Failed("out of memory for buffer '{}' ({}): {}; the largest buffers alive are {}", buffers_[id].name,
                  FormatBytes(buffers_[id].bytes), allocation.error().message, holders.empty() ? "none" : holders);
  }
  allocations_[id] = *allocation;
  by_category_[static_cast<int>(buffers_[id].category)] += allocation->bytes;
  NotePeak();
  return Ok();
}

void BufferPool::Free(BufferId id) {
  WT_CHECK(alive(id));
  allocator_.Free(allocations_[id]);
  by_category_[static_cast<int>(buffers_[id].category)] -= allocations_[id].bytes;
  allocations_[id] = {};
}

void BufferPool::NotePeak() {
  peak_.reserved = std::max(peak_.reserved, allocator_.reserved());
  if (allocator_.allocated() <= peak_.allocated) return;
  peak_.allocated = allocator_.allocated();
  std::copy(std::begin(by_category_), std::end(by_category_), std::begin(peak_.by_category));
}

void BufferPool::ResetPeak() {
  peak_ = {};
  NotePeak();
}

std::vector<BufferId> BufferPool::Largest(int count) const {
  std::vector<BufferId> ids;
  for (size_t id = 0; id < allocations_.size(); ++id) {
    if (allocations_[id].address != 0) ids.push_back(static_cast<BufferId>(id));
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [&](BufferId a, BufferId b) { return buffers_[a].bytes > buffers_[b].bytes; });
  if (static_cast<int>(ids.size()) > count) ids.resize(count);
  return ids;
}

}  // namespace windtunnel
