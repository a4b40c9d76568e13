#include "sim/role_memory.h"

#include "plan/buffer_pool.h"

namespace windtunnel {
namespace {

Status RunMemoryOps(const Program& program, BufferPool& pool, std::vector<MemorySample>* samples) {
  for (OpIndex i = 0; i < static_cast<OpIndex>(program.ops.size()); ++i) {
    const Op& op = program.ops[i];
    if (!IsMemory(op.kind)) continue;
    const BufferId buffer = op.writes.at(0).buffer;
    if (std::holds_alternative<Alloc>(op.kind)) {
      WT_RETURN_IF_ERROR(pool.Alloc(buffer));
    } else {
      pool.Free(buffer);
    }
    if (samples) samples->push_back({i, Duration(), pool.allocated(), pool.reserved()});
  }
  return Ok();
}

}  // namespace

Result<RoleMemory> SimulateMemory(const Role& role) {
  RoleMemory memory;
  VirtualSegmentSource source;
  BufferPool pool(role.buffers, &source);
  WT_RETURN_IF_ERROR(RunMemoryOps(role.initialize, pool, nullptr));
  for (const Program& step : role.startup) WT_RETURN_IF_ERROR(RunMemoryOps(step, pool, nullptr));
  memory.initial_peak = pool.peak().allocated;
  pool.ResetPeak();
  WT_RETURN_IF_ERROR(RunMemoryOps(role.steady, pool, &memory.samples));
  memory.steady = pool.peak();
  memory.reserved = pool.reserved();
  return memory;
}

}  // namespace windtunnel
