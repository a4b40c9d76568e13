// Whether this machine has the memory for a live run.
#pragma once

#include "base/result.h"
#include "base/units.h"
#include "plan/plan.h"

namespace windtunnel {

// Refuses a plan for the cpu device with too many ranks for this machine's cores, or whose ranks on this node
// would take more than `memory`, before any of them takes it: the sum of their peaks (sim/role_memory.h). What
// libraries hold comes on top. `node`: the number of this node.
// Errors: CheckShareOfCores's; Failed, with both sizes; those of SimulateMemory.
Status CheckRoomFor(const Plan& plan, int64_t node, Bytes memory);

}  // namespace windtunnel
