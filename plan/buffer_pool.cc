#include "plan/buffer_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/format.h"

namespace windtunnel {

BufferPool::BufferPool(const std::vector<Buffer>& buffers, const MemorySetup& setup)
    : buffers_(buffers), allocations_(buffers.size()) {
  WT_CHECK(setup.device != nullptr && setup.host != nullptr);
  Of(MemorySpace::kDevice).allocator = std::make_unique<CachingAllocator>(setup.device);
  Of(MemorySpace::kHost).allocator = std::make_unique<CachingAllocator>(setup.host);
}

Status BufferPool::Execute(const Program& program, OpIndex index) {
  const Op& op = program.ops[index];
  if (std::holds_alternative<windtunnel::Alloc>(op.kind)) return Alloc(op.writes.at(0).buffer, op.stream);
  if (std::holds_alternative<windtunnel::Free>(op.kind)) Free(op.writes.at(0).buffer);
  return Ok();
}

void BufferPool::FinishProgram() {}

Status BufferPool::Alloc(BufferId id, StreamId stream) {
  WT_CHECK(!alive(id));
  Space& space = Of(buffers_[id].space);
  auto allocation = space.allocator->Allocate(buffers_[id].bytes, stream);
  if (!allocation) return tl::unexpected(OutOfMemory(id, allocation.error()));
  allocations_[id] = *allocation;
  space.by_category[static_cast<int>(buffers_[id].category)] += allocation->bytes;
  NotePeak();
  return Ok();
}

void BufferPool::Free(BufferId id) {
  WT_CHECK(alive(id));
  Space& space = Of(buffers_[id].space);
  space.allocator->Free(allocations_[id]);
  space.by_category[static_cast<int>(buffers_[id].category)] -= allocations_[id].bytes;
  allocations_[id] = {};
}

Error BufferPool::OutOfMemory(BufferId id, const Error& cause) const {
  const Buffer& buffer = buffers_[id];
  const Allocator& allocator = *Of(buffer.space).allocator;
  std::string holders;
  for (BufferId holder : Largest(3, buffer.space)) {
    holders += fmt::format("{}{} ({})", holders.empty() ? "" : ", ", buffers_[holder].name,
                           FormatBytes(buffers_[holder].bytes));
  }
  return Failed("out of {} memory for buffer '{}' ({}): {}; of {} reserved, {} are allocated; the largest buffers alive are {}",
                Name(buffer.space), buffer.name, FormatBytes(buffer.bytes), cause.message,
                FormatBytes(allocator.reserved()), FormatBytes(allocator.allocated()),
                holders.empty() ? "none" : holders)
      .value();
}

void BufferPool::NotePeak() {
  const Space& device = Of(MemorySpace::kDevice);
  const Space& host = Of(MemorySpace::kHost);
  peak_.reserved = std::max(peak_.reserved, device.allocator->reserved());
  if (device.allocator->allocated() > peak_.allocated) {
    peak_.allocated = device.allocator->allocated();
    std::copy(device.by_category.begin(), device.by_category.end(), peak_.by_category);
  }
  if (host.allocator->allocated() > peak_.host_allocated) {
    peak_.host_allocated = host.allocator->allocated();
    std::copy(host.by_category.begin(), host.by_category.end(), peak_.host_by_category);
  }
}

void BufferPool::ResetPeak() {
  peak_ = {};
  NotePeak();
}

std::vector<BufferId> BufferPool::Largest(int count, MemorySpace space) const {
  std::vector<BufferId> ids;
  for (size_t id = 0; id < allocations_.size(); ++id) {
    if (allocations_[id].address != 0 && buffers_[id].space == space) ids.push_back(static_cast<BufferId>(id));
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [&](BufferId a, BufferId b) { return buffers_[a].bytes > buffers_[b].bytes; });
  if (static_cast<int>(ids.size()) > count) ids.resize(count);
  return ids;
}

}  // namespace windtunnel
