#include "reports/memory_peak.h"

#include <algorithm>

#include "plan/buffer_pool.h"

namespace windtunnel {
namespace {

Status Replay(const Program& program, int largest_buffers, BufferPool& pool, PeakMoment& moment) {
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (std::holds_alternative<Free>(op.kind)) pool.Free(op.writes.front().buffer);
    if (!std::holds_alternative<Alloc>(op.kind)) continue;
    WT_RETURN_IF_ERROR(pool.Alloc(op.writes.front().buffer));
    if (pool.allocated() <= moment.peak.allocated) continue;
    moment.peak = pool.peak();
    moment.program = program.name;
    moment.op = static_cast<OpIndex>(i);
    moment.largest = pool.Largest(largest_buffers);
  }
  moment.peak.reserved = std::max(moment.peak.reserved, pool.peak().reserved);
  return Ok();
}

}  // namespace

Result<RolePeaks> ReplayMemory(const Role& role, int largest_buffers) {
  VirtualSegmentSource source;
  BufferPool pool(role.buffers, &source);
  RolePeaks memory;
  WT_RETURN_IF_ERROR(Replay(role.initialize, largest_buffers, pool, memory.startup));
  for (const Program& program : role.startup)
    WT_RETURN_IF_ERROR(Replay(program, largest_buffers, pool, memory.startup));
  pool.ResetPeak();
  memory.steady = {pool.peak(), role.steady.name, -1, pool.Largest(largest_buffers)};
  WT_RETURN_IF_ERROR(Replay(role.steady, largest_buffers, pool, memory.steady));
  return memory;
}

OpIndex OperatorAfter(const Program& program, OpIndex op) {
  for (size_t i = static_cast<size_t>(op + 1); i < program.ops.size(); ++i)
    if (!IsMemory(program.ops[i].kind)) return static_cast<OpIndex>(i);
  return -1;
}

}  // namespace windtunnel
