#include "reports/memory_peak.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "plan/buffer_pool.h"
#include "sim/role_memory.h"

namespace windtunnel {
namespace {

class Replay {
 public:
  Replay(const Role& role, const MemorySetup& setup, int largest_buffers)
      : pool_(role.buffers, setup), largest_buffers_(largest_buffers) {}

  // Begins new peaks, with what is alive before `program`.
  void Restart(const Program& program, ProgramPeaks& peaks) {
    pool_.ResetPeak();
    for (MemorySpace space : {MemorySpace::kDevice, MemorySpace::kHost}) Note(program, -1, space, peaks);
  }

  Status Run(const Program& program, ProgramPeaks& peaks) {
    const auto on_memory = [&](int32_t index) -> Status {
      if (!program.memory[index].allocates()) ListLargest(peaks);
      WT_RETURN_IF_ERROR(pool_.Execute(program, program.memory[index]));
      for (MemorySpace space : {MemorySpace::kDevice, MemorySpace::kHost})
        if (Allocated(space) > MomentOf(space, peaks).allocated) Note(program, index, space, peaks);
      return Ok();
    };
    const auto on_op = [&](OpIndex index) -> Status {
      if (std::holds_alternative<HostWait>(program.ops[index].kind)) pool_.NoteHostWait(program, index);
      return Ok();
    };
    WT_RETURN_IF_ERROR(WalkProgram(program, on_memory, on_op));
    ListLargest(peaks);
    pool_.FinishProgram();
    peaks.memory = pool_.peak();
    return Ok();
  }

 private:
  static PeakMoment& MomentOf(MemorySpace space, ProgramPeaks& peaks) {
    return space == MemorySpace::kDevice ? peaks.device : peaks.host;
  }

  Bytes Allocated(MemorySpace space) const {
    return space == MemorySpace::kDevice ? pool_.allocated() : pool_.host_allocated();
  }

  // REQUIRES: the allocated peak of `space` is now.
  void Note(const Program& program, int32_t index, MemorySpace space, ProgramPeaks& peaks) {
    PeakMoment& moment = MomentOf(space, peaks);
    moment = {.allocated = Allocated(space),
              .by_category = {},
              .program = program.name,
              .index = index,
              .largest = {}};
    const MemoryPeak& peak = pool_.peak();
    const Bytes* categories = space == MemorySpace::kDevice ? peak.by_category : peak.host_by_category;
    std::copy(categories, categories + kCategories, moment.by_category);
    is_unlisted_[static_cast<int>(space)] = true;
  }

  // Lists the largest buffers of the peaks that were reached since the last call. It must be called before
  // anything else is freed, so that all buffers of the peak are still alive. It looks at every buffer, so it
  // is not called for a peak that still grows.
  void ListLargest(ProgramPeaks& peaks) {
    for (MemorySpace space : {MemorySpace::kDevice, MemorySpace::kHost})
      if (std::exchange(is_unlisted_[static_cast<int>(space)], false))
        MomentOf(space, peaks).largest = pool_.Largest(largest_buffers_, space);
  }

  BufferPool pool_;
  int largest_buffers_;
  bool is_unlisted_[2] = {};  // by space
};

Result<RolePeaks> Replayed(const Role& role, int largest_buffers, AllocatorKind allocator, Bytes capacity) {
  VirtualSegmentSource device(capacity), host;
  Replay replay(role, {.device = &device, .host = &host, .allocator = allocator}, largest_buffers);
  RolePeaks peaks;
  WT_RETURN_IF_ERROR(replay.Run(role.initialize, peaks.startup));
  for (const Program& program : role.startup) WT_RETURN_IF_ERROR(replay.Run(program, peaks.startup));
  replay.Restart(role.steady, peaks.steady);
  WT_ASSIGN_OR_RETURN(const RoleMemory memory,
                      SimulateMemory(role, {.allocator = allocator, .device_capacity = capacity}));
  for (int step = 0; step < memory.steps; ++step) WT_RETURN_IF_ERROR(replay.Run(role.steady, peaks.steady));
  peaks.steady.memory.retries = memory.steady.retries;
  return peaks;
}

}  // namespace

Result<RolePeaks> ReplayMemory(const Role& role, int largest_buffers, AllocatorKind allocator, Bytes room) {
  WT_ASSIGN_OR_RETURN(RolePeaks unlimited, Replayed(role, largest_buffers, allocator, Bytes::Max()));
  if (!GivesBack(allocator, room, unlimited.steady.memory)) return unlimited;
  Result<RolePeaks> limited = Replayed(role, largest_buffers, allocator, room);
  return limited ? std::move(limited) : unlimited;
}

}  // namespace windtunnel
