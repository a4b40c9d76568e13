#include "reports/memory_peak.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "plan/buffer_pool.h"
#include "sim/role_memory.h"

namespace windtunnel {
namespace {

// Numbers of memory operations, from the first program on.
using Moments = std::set<int64_t>;

class Replay {
 public:
  // Lists the largest buffers of peaks that are reached at `listed`. To do so at each peak would take time
  // for every buffer each time, while most peaks are surpassed.
  Replay(const Role& role, const MemorySetup& setup, int largest_buffers, Moments listed)
      : pool_(role.buffers, setup), largest_buffers_(largest_buffers), listed_(std::move(listed)) {}

  // Begins new peaks, with what is alive before `program`.
  void Restart(const Program& program, ProgramPeaks& peaks) {
    pool_.ResetPeak();
    for (MemorySpace space : {MemorySpace::kDevice, MemorySpace::kHost}) Note(program, -1, space, peaks);
  }

  Status Run(const Program& program, ProgramPeaks& peaks) {
    const auto on_memory = [&](int32_t index) -> Status {
      WT_RETURN_IF_ERROR(pool_.Execute(program, program.memory[index]));
      ++memory_ops_;
      for (MemorySpace space : {MemorySpace::kDevice, MemorySpace::kHost})
        if (Allocated(space) > MomentOf(space, peaks).allocated) Note(program, index, space, peaks);
      return Ok();
    };
    const auto on_op = [&](OpIndex index) -> Status {
      if (std::holds_alternative<HostWait>(program.ops[index].kind)) pool_.NoteHostWait(program, index);
      return Ok();
    };
    WT_RETURN_IF_ERROR(WalkProgram(program, on_memory, on_op));
    pool_.FinishProgram();
    peaks.memory = pool_.peak();
    return Ok();
  }

  // When the peaks were reached that none surpassed.
  Moments PeaksReached() const {
    Moments moments;
    for (const auto& [peak, moment] : reached_) moments.insert(moment);
    return moments;
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
    if (listed_.contains(memory_ops_)) moment.largest = pool_.Largest(largest_buffers_, space);
    reached_[&moment] = memory_ops_;
  }

  BufferPool pool_;
  const int largest_buffers_;
  const Moments listed_;
  std::map<const PeakMoment*, int64_t> reached_;
  int64_t memory_ops_ = 0;  // of all programs so far
};

Result<RolePeaks> Replayed(const Role& role, int largest_buffers, AllocatorKind allocator, Bytes capacity) {
  WT_ASSIGN_OR_RETURN(const RoleMemory memory,
                      SimulateMemory(role, {.allocator = allocator, .device_capacity = capacity}));
  RolePeaks peaks;
  Moments reached;
  for (const bool lists : {false, true}) {
    peaks = {};
    VirtualSegmentSource device(capacity), host;
    Replay replay(role, {.device = &device, .host = &host, .allocator = allocator}, largest_buffers, reached);
    WT_RETURN_IF_ERROR(replay.Run(role.initialize, peaks.startup));
    for (const Program& program : role.startup) WT_RETURN_IF_ERROR(replay.Run(program, peaks.startup));
    replay.Restart(role.steady, peaks.steady);
    for (int step = 0; step < memory.steps; ++step) WT_RETURN_IF_ERROR(replay.Run(role.steady, peaks.steady));
    if (!lists) reached = replay.PeaksReached();
  }
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
