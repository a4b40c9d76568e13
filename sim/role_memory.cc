#include "sim/role_memory.h"

#include "plan/buffer_pool.h"

namespace windtunnel {
namespace {

Status RunMemoryOps(const Program& program, BufferPool& pool, std::vector<MemorySample>* samples) {
  for (OpIndex i = 0; i < static_cast<OpIndex>(program.ops.size()); ++i) {
    WT_RETURN_IF_ERROR(pool.Execute(program, i));
    if (samples != nullptr && IsMemory(program.ops[i].kind))
      samples->push_back({i, Duration(), pool.allocated(), pool.reserved()});
  }
  pool.FinishProgram();
  return Ok();
}

}  // namespace

Result<RoleMemory> SimulateMemory(const Role& role, const RoleMemoryOptions& options) {
  RoleMemory memory;
  VirtualSegmentSource device(options.device_capacity), host(options.host_capacity);
  BufferPool pool(role.buffers,
                  MemorySetup{.device = &device, .host = &host, .allocator = options.allocator});
  WT_RETURN_IF_ERROR(RunMemoryOps(role.initialize, pool, nullptr));
  for (const Program& step : role.startup) WT_RETURN_IF_ERROR(RunMemoryOps(step, pool, nullptr));
  memory.initial_peak = pool.peak().allocated;
  pool.ResetPeak();
  WT_RETURN_IF_ERROR(RunMemoryOps(role.steady, pool, &memory.samples));
  memory.steady = pool.peak();
  memory.reserved = pool.reserved();
  memory.host_reserved = pool.host_reserved();
  return memory;
}

Result<RoleMemory> SimulateMemoryWithin(Bytes room, const Role& role, AllocatorKind allocator) {
  WT_ASSIGN_OR_RETURN(RoleMemory unlimited, SimulateMemory(role, {.allocator = allocator}));
  const bool gives_back = allocator != AllocatorKind::kWindtunnel;
  if (!gives_back || unlimited.steady.reserved <= room || unlimited.steady.requested > room) return unlimited;
  auto limited = SimulateMemory(role, {.allocator = allocator, .device_capacity = room});
  return limited ? std::move(limited) : unlimited;
}

}  // namespace windtunnel
