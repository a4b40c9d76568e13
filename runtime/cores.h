// The cores of this machine that a job's ranks run on.
#pragma once

#include <sched.h>

#include <cstdint>

namespace windtunnel {

// Cores that this process may use (its affinity): those that a launcher's ranks share.
int64_t UsableCores();

// Core number `rank`, modulo their number, of those that this process may use. False when the system does not tell.
bool CoreOfRank(int rank, cpu_set_t& core);

}  // namespace windtunnel
