#include "base/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace windtunnel {

Bytes MachineMemory() {
  Bytes memory = Bytes(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream in(file);
    if (int64_t limit = 0; in >> limit && limit > 0) memory = std::min(memory, Bytes(limit));
  }
  return memory;
}

}  // namespace windtunnel
