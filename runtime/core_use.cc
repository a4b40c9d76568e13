#include "runtime/core_use.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/host_name.h"

namespace windtunnel {
namespace {

constexpr double kShortest = 0.25;  // seconds

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

std::string LinkTo(const char* path) {
  std::array<char, 128> target{};
  const ssize_t size = readlink(path, target.data(), target.size());
  return {target.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

}  // namespace

CoreUseMeter::CoreUseMeter() : begin_(Take()) {}

// proc(5), /proc/stat: "cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …" of all cores in ticks, then a
// line "cpuN …" of each.
std::optional<CoreUseMeter::Sample> CoreUseMeter::Take() {
  std::ifstream file("/proc/stat");
  std::string line;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0, steal = 0;
  if (!std::getline(file, line)) return std::nullopt;
  std::istringstream fields(line.substr(std::min<size_t>(line.size(), 3)));
  if (!(fields >> user >> nice >> system >> idle >> waiting >> irq >> softirq >> steal)) return std::nullopt;
  Sample sample;
  sample.time = std::chrono::steady_clock::now();
  sample.busy = (user + nice + system + irq + softirq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
  while (std::getline(file, line) && line.starts_with("cpu")) ++sample.cores;
  rusage usage{};
  if (sample.cores == 0 || getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
  sample.own = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  return sample;
}

std::optional<CoreUse> CoreUseMeter::Read() const {
  const std::optional<Sample> end = Take();
  if (!begin_ || !end) return std::nullopt;
  const double wall = std::chrono::duration<double>(end->time - begin_->time).count();
  if (wall < kShortest) return std::nullopt;
  return CoreUse{.machine = BootId().value_or(HostName()),
                 .process = fmt::format("{} {}", LinkTo("/proc/self/ns/pid"), getpid()),
                 .cores = end->cores,
                 .busy = (end->busy - begin_->busy) / wall,
                 .own = (end->own - begin_->own) / wall};
}

std::optional<SharedCores> FullestMachine(const std::vector<std::optional<CoreUse>>& ranks) {
  struct Machine {
    double cores = 0, busy = 0, own = 0;
    std::set<std::string> processes;
  };
  std::map<std::string, Machine> machines;
  for (const std::optional<CoreUse>& rank : ranks) {
    if (!rank) return std::nullopt;
    Machine& machine = machines[rank->machine];
    if (!machine.processes.insert(rank->process).second) continue;
    machine.cores = rank->cores;
    machine.busy = std::max(machine.busy, rank->busy);  // measured at slightly different times
    machine.own += rank->own;
  }
  std::optional<SharedCores> fullest;
  for (const auto& [name, machine] : machines) {
    const SharedCores shared{machine.cores, machine.own, std::max(machine.busy - machine.own, 0.0)};
    const double left = shared.all - shared.own - shared.others;
    if (!fullest || left < fullest->all - fullest->own - fullest->others) fullest = shared;
  }
  return fullest;
}

}  // namespace windtunnel
