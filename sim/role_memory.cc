#include "sim/role_memory.h"

#include <algorithm>

#include "plan/buffer_pool.h"

namespace windtunnel {
namespace {

constexpr int kMostSteadySteps = 8;

// Runs the program's memory operators. Returns a hash of its buffers' addresses.
Result<uint64_t> RunMemoryOps(const Program& program, BufferPool& pool, std::vector<MemorySample>* samples) {
  uint64_t places = 0;
  const auto on_memory = [&](int32_t index) -> Status {
    const MemoryOp& op = program.memory[index];
    WT_RETURN_IF_ERROR(pool.Execute(program, op));
    if (samples != nullptr) samples->push_back({index, Duration(), pool.allocated(), pool.reserved()});
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // Fibonacci hashing: 2^64 over the golden ratio
    if (op.allocates()) places = (places + pool.address(op.buffer)) * kOdd;
    return Ok();
  };
  const auto on_op = [&](OpIndex index) -> Status {
    if (std::holds_alternative<HostWait>(program.ops[index].kind)) pool.NoteHostWait(program, index);
    return Ok();
  };
  WT_RETURN_IF_ERROR(WalkProgram(program, on_memory, on_op));
  pool.FinishProgram();
  return places;
}

// The sum of the requests of device memory that have not been freed, and its peak.
class Requests {
 public:
  Requests(const std::vector<Buffer>& buffers, AllocatorKind allocator)
      : buffers_(buffers), allocator_(allocator) {}

  void Run(const Program& program) {
    for (const MemoryOp& op : program.memory) {
      const Buffer& buffer = buffers_[op.buffer];
      if (buffer.space != MemorySpace::kDevice) continue;
      const Bytes bytes = RequestedBytes(buffer.bytes, allocator_);
      if (op.allocates()) alive_ += bytes;
      else alive_ -= bytes;
      peak_ = std::max(peak_, alive_);
    }
  }

  void ResetPeak() { peak_ = alive_; }
  Bytes peak() const { return peak_; }

 private:
  const std::vector<Buffer>& buffers_;
  const AllocatorKind allocator_;
  Bytes alive_, peak_;
};

}  // namespace

Result<RoleMemory> SimulateMemory(const Role& role, const RoleMemoryOptions& options) {
  RoleMemory memory;
  VirtualSegmentSource device(options.device_capacity), host(options.host_capacity);
  BufferPool pool(role.buffers,
                  MemorySetup{.device = &device, .host = &host, .allocator = options.allocator});
  WT_ASSIGN_OR_RETURN(uint64_t places, RunMemoryOps(role.initialize, pool, nullptr));
  for (const Program& step : role.startup) {
    WT_ASSIGN_OR_RETURN(places, RunMemoryOps(step, pool, nullptr));
  }
  memory.initial_peak = pool.peak().allocated;
  // A step leaves other blocks free than it found, so the next one may need new memory where this one did
  // not, until buffers have the same addresses as in the step before.
  bool repeats = false;
  while (!repeats && memory.steps < kMostSteadySteps) {
    pool.ResetPeak();
    memory.samples.clear();
    const uint64_t before = places;
    WT_ASSIGN_OR_RETURN(places, RunMemoryOps(role.steady, pool, &memory.samples));
    memory.steady.Include(pool.peak());
    ++memory.steps;
    repeats = places == before;
  }
  memory.reserved = pool.reserved();
  memory.host_reserved = pool.host_reserved();
  return memory;
}

Bytes RequestedPeak(const Role& role, AllocatorKind allocator) {
  Requests requests(role.buffers, allocator);
  requests.Run(role.initialize);
  for (const Program& step : role.startup) requests.Run(step);
  requests.ResetPeak();
  requests.Run(role.steady);
  return requests.peak();
}

bool GivesBack(AllocatorKind allocator, Bytes room, const MemoryPeak& unlimited) {
  return allocator != AllocatorKind::kWindtunnel && unlimited.reserved > room && unlimited.requested <= room;
}

Result<RoleMemory> SimulateMemoryWithin(Bytes room, const Role& role, AllocatorKind allocator) {
  WT_ASSIGN_OR_RETURN(RoleMemory unlimited, SimulateMemory(role, {.allocator = allocator}));
  if (!GivesBack(allocator, room, unlimited.steady)) return unlimited;
  auto limited = SimulateMemory(role, {.allocator = allocator, .device_capacity = room});
  return limited ? std::move(limited) : unlimited;
}

}  // namespace windtunnel
