// The cores of this machine that a job's ranks run on.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/socket.h"

namespace windtunnel {

// The number of cores that this process may use (its affinity); a launcher's ranks share them.
int64_t UsableCores();

// Refuses more ranks than may share this machine's cores. Errors: Unsupported.
Status CheckShareOfCores(int64_t ranks);

// Sets `core` to number `rank`, modulo their count, of the cores that this process may use. False if the
// system does not tell.
bool CoreOfRank(int rank, cpu_set_t& core);

// The cores that a job's ranks run on, all of which this process starts: rank r on CoreOfRank's. If another
// job has claimed that one, and none of this job's other ranks would have to share for it, the next that
// nobody has. So jobs beside each other take different cores. A claim ends with the object, and is known to
// jobs in the same network namespace (it is the name of an abstract socket).
class CoreClaims {
 public:
  // For ranks `first` to `first + ranks - 1` of the machine. Cores are those of the calling thread. `scope`:
  // only claims of the same one exclude each other.
  CoreClaims(int first, int ranks, std::string scope = "windtunnel");

  // Sets `core` to that of a rank. False if the system does not tell. REQUIRES: it is one of the ranks.
  bool CoreOf(int rank, cpu_set_t& core) const;

 private:
  bool Claim(int core);

  const int first_;
  const std::string scope_;
  std::vector<int> core_of_rank_;        // empty if unknown
  std::vector<FileDescriptor> claimed_;  // sockets whose names are the claims
};

// The cores that this process may use, as text: "0110" are cores 1 and 2.
std::string UsableCoresText();

// Whether a process that may use the cores `own` has to share them. `all` has the cores of every
// process, this one included. It has to if more processes overlap with `own` than there are cores
// that these processes may use.
bool SharesCores(const std::string& own, const std::vector<std::string>& all);

}  // namespace windtunnel
