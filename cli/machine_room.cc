#include "cli/machine_room.h"

#include <algorithm>
#include <map>

#include "base/format.h"
#include "runtime/cores.h"
#include "sim/role_memory.h"

namespace windtunnel {

Status CheckRoomFor(const Plan& plan, int64_t node, Bytes memory) {
  if (plan.scenario.cluster.device != "cpu") return Ok();
  const int64_t of_node = std::min<int64_t>(plan.scenario.cluster.devices_per_node, plan.world_size);
  std::map<int, int64_t> ranks_of_role;
  const int64_t first = node * of_node, end = std::min<int64_t>(first + of_node, plan.world_size);
  for (int64_t rank = first; rank < end; ++rank)
    ++ranks_of_role[plan.role_of_rank[static_cast<size_t>(rank)]];
  WT_RETURN_IF_ERROR(CheckShareOfCores(end - first));
  double needed = 0;
  Bytes largest;
  for (const auto& [role, ranks] : ranks_of_role) {
    WT_ASSIGN_OR_RETURN(const RoleMemory peaks, SimulateMemory(plan.roles[static_cast<size_t>(role)],
                                                               {.allocator = plan.scenario.allocator}));
    const Bytes peak = std::max(peaks.initial_peak, peaks.steady.reserved) + peaks.host_reserved;
    largest = std::max(largest, peak);
    needed += static_cast<double>(peak.count()) * static_cast<double>(ranks);
  }
  if (needed <= static_cast<double>(memory.count())) return Ok();
  return Failed(
      "{}: needs {} of memory ({}, at most {} each), and this machine has {}; `windtunnel explain "
      "--memory` says what for",
      plan.scenario.name, FormatBytes(Bytes(static_cast<int64_t>(std::min(needed, 9e18)))),
      Counted(end - first, "rank"), FormatBytes(largest), FormatBytes(memory));
}

}  // namespace windtunnel
