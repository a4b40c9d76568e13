#include "plan/buffer_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "plan/pytorch_allocator.h"

namespace windtunnel {
namespace {

std::unique_ptr<Allocator> MakeAllocator(const MemorySetup& setup) {
  switch (setup.allocator) {
    case AllocatorKind::kWindtunnel:
      return std::make_unique<CachingAllocator>(setup.device);
    case AllocatorKind::kPytorch:
    case AllocatorKind::kPytorchExpandable:
      break;
  }
  const bool expandable = setup.allocator == AllocatorKind::kPytorchExpandable;
  return std::make_unique<PytorchAllocator>(
      setup.device, PytorchAllocator::Options{.expandable = expandable, .can_wait = setup.can_wait});
}

// The last operator before `index` that was issued to `stream`; -1: none.
OpIndex LastIssued(const Program& program, OpIndex index, StreamId stream) {
  while (--index >= 0 && program.ops[index].stream != stream) {
  }
  return index;
}

}  // namespace

Bytes RequestedBytes(Bytes bytes, AllocatorKind allocator) {
  const bool is_nothing = bytes == Bytes(0) && allocator != AllocatorKind::kWindtunnel;
  return is_nothing ? bytes : RoundedRequest(bytes);
}

BufferPool::BufferPool(const std::vector<Buffer>& buffers, const MemorySetup& setup)
    : buffers_(buffers), allocations_(buffers.size()) {
  WT_CHECK(setup.device != nullptr && setup.host != nullptr);
  Of(MemorySpace::kDevice).allocator = MakeAllocator(setup);
  Of(MemorySpace::kHost).allocator = std::make_unique<CachingAllocator>(setup.host);
}

Status BufferPool::Execute(const Program& program, const MemoryOp& op) {
  if (op.allocates()) return Alloc(op.buffer, {.stream = op.stream, .apart = op.apart});
  if (op.recorded_stream < 0) Free(op.buffer);
  else FreeAfter(program, op);
  return Ok();
}

void BufferPool::NoteHostWait(const Program& program, OpIndex index) {
  for (OpIndex dependency : program.ops[index].dependencies) NoteWaited(program, dependency);
  CompleteEvents();
}

void BufferPool::FreeAfter(const Program& program, const MemoryOp& op) {
  const Event event{next_event_++, op.recorded_stream, LastIssued(program, op.before, op.recorded_stream)};
  Release(op.buffer, event.number);
  events_.push_back(event);
  CompleteEvents();  // the host may have waited for it already
}

// Waiting for an operator covers all that was issued to its stream before, and all that those waited for.
void BufferPool::NoteWaited(const Program& program, OpIndex op) {
  const StreamId stream = program.ops[op].stream;
  if (stream >= static_cast<StreamId>(waited_.size())) waited_.resize(stream + 1, -1);
  const OpIndex before = waited_[stream];
  if (op <= before) return;
  waited_[stream] = op;
  for (OpIndex earlier = op; earlier > before; --earlier) {
    const Op& done = program.ops[earlier];
    if (done.stream != stream) continue;
    for (OpIndex dependency : done.dependencies) NoteWaited(program, dependency);
  }
}

void BufferPool::CompleteEvents() {
  std::erase_if(events_, [&](const Event& event) {
    const OpIndex waited = event.stream < static_cast<StreamId>(waited_.size()) ? waited_[event.stream] : -1;
    if (waited < event.op) return false;
    Of(MemorySpace::kDevice).allocator->Complete(event.number);
    return true;
  });
}

void BufferPool::FinishProgram() {
  for (const Event& event : events_) Of(MemorySpace::kDevice).allocator->Complete(event.number);
  events_.clear();
  waited_.clear();
}

Status BufferPool::Alloc(BufferId id, MemoryOwner owner) {
  WT_CHECK(!alive(id));
  Space& space = Of(buffers_[id].space);
  auto allocation = space.allocator->Allocate(buffers_[id].bytes, owner);
  if (!allocation) return tl::unexpected(OutOfMemory(id, allocation.error()));
  allocations_[id] = *allocation;
  space.by_category[static_cast<int>(buffers_[id].category)] += allocation->bytes;
  NotePeak();
  return Ok();
}

void BufferPool::Free(BufferId id) { Release(id, kNow); }

void BufferPool::Release(BufferId id, MemoryEvent until) {
  WT_CHECK(alive(id));
  Space& space = Of(buffers_[id].space);
  space.allocator->Free(allocations_[id], until);
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
  return Failed(
             "out of {} memory for buffer '{}' ({}): {}; of {} reserved, {} are allocated; the largest "
             "buffers alive are {}",
             Name(buffer.space), buffer.name, FormatBytes(buffer.bytes), cause.message,
             FormatBytes(allocator.reserved()), FormatBytes(allocator.allocated()),
             holders.empty() ? "none" : holders)
      .value();
}

void BufferPool::NotePeak() {
  const Space& device = Of(MemorySpace::kDevice);
  const Space& host = Of(MemorySpace::kHost);
  const Bytes reserved = device.allocator->reserved(), allocated = device.allocator->allocated();
  if (reserved > peak_.reserved) peak_.allocated_at_reserved = Bytes(0);
  peak_.reserved = std::max(peak_.reserved, reserved);
  if (reserved == peak_.reserved)
    peak_.allocated_at_reserved = std::max(peak_.allocated_at_reserved, allocated);
  peak_.requested = std::max(peak_.requested, device.allocator->requested());
  peak_.largest_unserved = device.allocator->largest_unserved();
  peak_.retries = device.allocator->retries() - earlier_retries_;
  if (allocated > peak_.allocated) {
    peak_.allocated = allocated;
    std::copy(device.by_category.begin(), device.by_category.end(), peak_.by_category);
  }
  if (host.allocator->allocated() > peak_.host_allocated) {
    peak_.host_allocated = host.allocator->allocated();
    std::copy(host.by_category.begin(), host.by_category.end(), peak_.host_by_category);
  }
}

void BufferPool::ResetPeak() {
  peak_ = {};
  earlier_retries_ = Of(MemorySpace::kDevice).allocator->retries();
  NotePeak();
}

std::vector<BufferId> BufferPool::Largest(int count, MemorySpace space) const {
  std::vector<BufferId> ids;
  for (size_t id = 0; id < allocations_.size(); ++id) {
    if (allocations_[id].address != 0 && buffers_[id].space == space)
      ids.push_back(static_cast<BufferId>(id));
  }
  const size_t kept = std::min(ids.size(), static_cast<size_t>(count));
  std::partial_sort(
      ids.begin(), ids.begin() + static_cast<ptrdiff_t>(kept), ids.end(), [&](BufferId a, BufferId b) {
        return buffers_[a].bytes != buffers_[b].bytes ? buffers_[a].bytes > buffers_[b].bytes : a < b;
      });
  ids.resize(kept);
  return ids;
}

}  // namespace windtunnel
