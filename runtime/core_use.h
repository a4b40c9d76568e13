// Measures who used the machine's cores while a rank ran: a step measured while a build runs says little.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace windtunnel {

// Core use as one rank saw it. `busy` and `own` are numbers of cores in use, averaged over the measured time.
struct CoreUse {
  std::string machine;  // equal on all ranks of one machine
  std::string process;  // equal on ranks that are threads of one process
  double cores = 0;     // of the machine
  double busy = 0;      // in use by anything, including a hypervisor's other guests ("steal")
  double own = 0;       // in use by this process
};

// How many of one machine's cores a job's ranks used, and how many others used.
struct SharedCores {
  double all = 0, own = 0, others = 0;
  // Others took a twentieth of the cores or more, and less than a tenth was left, so the job
  // could hardly have had more.
  bool is_crowded() const { return others >= 0.05 * all && own + others >= 0.9 * all; }
};

// Measures from its construction on.
class CoreUseMeter {
 public:
  CoreUseMeter();
  // nullopt where the system does not tell, or where the time was too short for the kernel's ticks of 10 ms.
  std::optional<CoreUse> Read() const;

 private:
  struct Sample {
    std::chrono::steady_clock::time_point time;
    // `busy` is in seconds since boot, `own` in seconds since this process began.
    double cores = 0, busy = 0, own = 0;
  };
  static std::optional<Sample> Take();
  std::optional<Sample> begin_;
};

// Of the machines that the ranks (by rank) ran on, the use of the one with the fewest idle cores. nullopt
// where a rank could not tell.
std::optional<SharedCores> FullestMachine(const std::vector<std::optional<CoreUse>>& ranks);

}  // namespace windtunnel
