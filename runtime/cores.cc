#include "runtime/cores.h"

#include <unistd.h>

#include <algorithm>

namespace windtunnel {

int64_t UsableCores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));
}

bool CoreOfRank(int rank, cpu_set_t& core) {
  cpu_set_t allowed;
  CPU_ZERO(&core);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  int skip = rank % CPU_COUNT(&allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    CPU_SET(cpu, &core);
    return true;
  }
  return false;
}

}  // namespace windtunnel
