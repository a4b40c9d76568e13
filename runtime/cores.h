// The cores of this machine that a job's ranks run on.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace windtunnel {

// Cores that this process may use (its affinity): those that a launcher's ranks share.
int64_t UsableCores();

// Core number `rank`, modulo their number, of those that this process may use. False when the system does not tell.
bool CoreOfRank(int rank, cpu_set_t& core);

// The cores that this process may use, as text: "0110" are cores 1 and 2.
std::string UsableCoresText();

// Whether a process that may use cores `own` has to share them, as others may use `all` (its own among them): there are more processes that
// may use one of them than cores that these may use.
bool SharesCores(const std::string& own, const std::vector<std::string>& all);

}  // namespace windtunnel
