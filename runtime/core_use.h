// Measures who used a rank's cores while it ran: a step measured while a build runs says little.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace windtunnel {

// Core use as one rank saw it. `busy` and `own` are numbers of cores in use, averaged over the measured time.
struct CoreUse {
  std::string machine;  // equal on all ranks of one machine
  std::string process;  // equal for ranks whose use is counted together
  std::string places;   // the cores that the rank may use, one with run.pin (UsableCoresText)
  double cores = 0;     // their number
  double busy = 0;      // of them, in use by anything, including a hypervisor's other guests ("steal")
  double own = 0;       // in use by this process, or thread
};

// How many of the cores that some ranks may use a job's ranks used, and how many others used.
struct SharedCores {
  double all = 0, own = 0, others = 0;
  int ranks = 1;  // of the job, on these cores
  // Others took a twentieth of the cores, or a tenth of one, or more, and less than a tenth was left, so the
  // job could hardly have had more.
  bool is_crowded() const { return others >= std::max(0.05 * all, 0.1) && own + others >= 0.9 * all; }
};

// Measures from its construction on, for the cores that the calling thread may use then.
class CoreUseMeter {
 public:
  // kThread: of ranks that are threads of one process, each of which has cores of its own.
  enum class Of : uint8_t { kProcess, kThread };
  explicit CoreUseMeter(Of of = Of::kProcess);
  // nullopt where the system does not tell, or where the time was too short for the kernel's ticks of 10 ms.
  std::optional<CoreUse> Read() const;

 private:
  struct Sample {
    std::chrono::steady_clock::time_point time;
    // `busy` is in seconds since boot, `own` in seconds since this process began.
    double cores = 0, busy = 0, own = 0;
  };
  std::optional<Sample> Take() const;
  Of of_;
  std::string places_;
  std::optional<Sample> begin_;
};

// "the machine was busy: this took 1.0 of 2 cores, others 0.9"; "4 ranks shared 2 cores"; empty if the ranks
// had the cores that they could use.
std::string DescribeCrowd(const SharedCores& cores);

// Of the sets of cores that the ranks (by rank) could use, the use of the one with the least left; of several
// that have nothing left, of one that others took most of. nullopt where a rank could not tell.
std::optional<SharedCores> FullestCores(const std::vector<std::optional<CoreUse>>& ranks);

}  // namespace windtunnel
