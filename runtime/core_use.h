// Who used the machine's cores while a rank ran: a step measured beside a build says little.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace windtunnel {

// As one rank saw it. Times are averages over the time that it looked at: cores in use.
struct CoreUse {
  std::string machine;  // ranks of one machine say the same
  std::string process;  // and ranks that are threads of one process
  double cores = 0;     // that the machine has
  double busy = 0;      // of them, with anything, a hypervisor's other guests ("steal") included
  double own = 0;       // with this process
};

// What of one machine's cores a job's ranks used, and what others did.
struct SharedCores {
  double all = 0, own = 0, others = 0;
  // Others took a twentieth of the cores or more, and the job could hardly have had any that they left.
  bool is_crowded() const { return others >= 0.05 * all && own + others >= 0.9 * all; }
};

// Looks from its construction on.
class CoreUseMeter {
 public:
  CoreUseMeter();
  // Nothing where the system does not tell, or the time was too short for the kernel's ticks of 10 ms.
  std::optional<CoreUse> Read() const;

 private:
  struct Sample {
    std::chrono::steady_clock::time_point time;
    double cores = 0, busy = 0, own = 0;  // seconds since boot, since this process began
  };
  static std::optional<Sample> Take();
  std::optional<Sample> begin_;
};

// Of the machine that had the least left, of those that the ranks (by rank) ran on. Nothing where a rank could not tell.
std::optional<SharedCores> FullestMachine(const std::vector<std::optional<CoreUse>>& ranks);

}  // namespace windtunnel
