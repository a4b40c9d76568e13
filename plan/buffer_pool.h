// A role's buffers, over the allocators of the device's and the host's memory: executes the memory operations
// of programs, in both executors, and keeps the peaks and what they consisted of.
//
//   BufferPool pool(role.buffers, &source);
//   for (const MemoryOp& op : program.memory) WT_RETURN_IF_ERROR(pool.Execute(program, op));
//   // and NoteHostWait where the host waits
//   pool.FinishProgram();
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/result.h"
#include "plan/allocator.h"
#include "plan/step_program.h"
#include "plan/timeline.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// What a buffer of `bytes` bytes requests from the device's allocator: its size, rounded. An empty buffer
// requests nothing, except from Windtunnel's allocator, with which every buffer has an address.
Bytes RequestedBytes(Bytes bytes, AllocatorKind allocator);

struct MemorySetup {
  SegmentSource* device = nullptr;
  SegmentSource* host = nullptr;  // may be the device's; its policy is always Windtunnel's
  AllocatorKind allocator = AllocatorKind::kWindtunnel;  // the device's
  bool can_wait = true;                                  // as PytorchAllocator::Options
};

class BufferPool {
 public:
  // `buffers` and the sources must outlive the pool.
  BufferPool(const std::vector<Buffer>& buffers, const MemorySetup& setup);
  // Windtunnel's policy, over one source for both memories.
  BufferPool(const std::vector<Buffer>& buffers, SegmentSource* source)
      : BufferPool(buffers, MemorySetup{.device = source, .host = source}) {}

  // Errors: Alloc's.
  Status Execute(const Program& program, const MemoryOp& op);
  // The host has waited for the dependencies of operator `index`, a HostWait.
  void NoteHostWait(const Program& program, OpIndex index);
  // The host has waited for everything that the program issued.
  void FinishProgram();

  // Failed (out of memory): names the memory, the buffer, its size and the largest buffers alive there.
  Status Alloc(BufferId id, MemoryOwner owner = {});
  void Free(BufferId id);  // REQUIRES: allocated

  bool alive(BufferId id) const { return allocations_[id].address != 0; }
  uint64_t address(BufferId id) const { return allocations_[id].address; }
  // Of the device's memory, unless the name says otherwise.
  Bytes allocated() const { return Of(MemorySpace::kDevice).allocator->allocated(); }
  Bytes reserved() const { return Of(MemorySpace::kDevice).allocator->reserved(); }
  Bytes host_allocated() const { return Of(MemorySpace::kHost).allocator->allocated(); }
  Bytes host_reserved() const { return Of(MemorySpace::kHost).allocator->reserved(); }

  // The peaks since the last ResetPeak; device and host each have theirs at a moment of its own.
  const MemoryPeak& peak() const { return peak_; }
  void ResetPeak();

  // Ids of the `count` largest buffers alive in `space`, largest first.
  std::vector<BufferId> Largest(int count, MemorySpace space = MemorySpace::kDevice) const;

 private:
  struct Space {
    std::unique_ptr<Allocator> allocator;
    std::array<Bytes, kCategories> by_category;
  };
  Space& Of(MemorySpace space) { return spaces_[static_cast<int>(space)]; }
  const Space& Of(MemorySpace space) const { return spaces_[static_cast<int>(space)]; }
  Error OutOfMemory(BufferId id, const Error& cause) const;
  void NotePeak();
  void FreeAfter(const Program& program, const MemoryOp& op);
  void NoteWaited(const Program& program, OpIndex op);
  void CompleteEvents();
  void Release(BufferId id, MemoryEvent until);

  // All work that was issued to a stream, up to and including operator `op`.
  struct Event {
    MemoryEvent number;
    StreamId stream;
    OpIndex op;
  };

  const std::vector<Buffer>& buffers_;
  std::array<Space, 2> spaces_;  // by MemorySpace
  std::vector<Allocation> allocations_;
  MemoryPeak peak_;
  int64_t earlier_retries_ = 0;  // retries before the last ResetPeak
  MemoryEvent next_event_ = 0;
  std::vector<Event> events_;    // of this program, those that the host has not waited for
  std::vector<OpIndex> waited_;  // by stream: the last operator that the host knows to be done
};

}  // namespace windtunnel
