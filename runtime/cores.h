// The cores of this machine that a job's ranks run on.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

// The number of cores that this process may use (its affinity); a launcher's ranks share them.
int64_t UsableCores();

// Refuses more ranks than may share this machine's cores. Errors: Unsupported.
Status CheckShareOfCores(int64_t ranks);

// Sets `core` to number `rank`, modulo their count, of the cores that this process may use. False
// when the system does not tell.
bool CoreOfRank(int rank, cpu_set_t& core);

// The cores that this process may use, as text: "0110" are cores 1 and 2.
std::string UsableCoresText();

// Whether a process that may use the cores `own` has to share them. `all` has the cores of every
// process, this one included. It has to if more processes overlap with `own` than there are cores
// that these processes may use.
bool SharesCores(const std::string& own, const std::vector<std::string>& all);

}  // namespace windtunnel
