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
#include "runtime/cores.h"

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

CoreUseMeter::CoreUseMeter(Of of) : of_(of), places_(UsableCoresText()), begin_(Take()) {}

// proc(5), /proc/stat: "cpu …" of all cores, then of each "cpuN USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ
// STEAL …" in ticks.
std::optional<CoreUseMeter::Sample> CoreUseMeter::Take() const {
  std::ifstream file("/proc/stat");
  std::string line;
  Sample sample;
  sample.time = std::chrono::steady_clock::now();
  std::getline(file, line);
  while (std::getline(file, line) && line.starts_with("cpu")) {
    size_t core = 0;
    double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0, steal = 0;
    std::istringstream fields(line.substr(3));
    if (!(fields >> core >> user >> nice >> system >> idle >> waiting >> irq >> softirq >> steal))
      return std::nullopt;
    if (core >= places_.size() || places_[core] != '1') continue;
    ++sample.cores;
    sample.busy += (user + nice + system + irq + softirq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  rusage usage{};
  if (sample.cores == 0 || getrusage(of_ == Of::kThread ? RUSAGE_THREAD : RUSAGE_SELF, &usage) != 0)
    return std::nullopt;
  sample.own = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  return sample;
}

std::optional<CoreUse> CoreUseMeter::Read() const {
  const std::optional<Sample> end = Take();
  if (!begin_ || !end) return std::nullopt;
  const double wall = std::chrono::duration<double>(end->time - begin_->time).count();
  if (wall < kShortest) return std::nullopt;
  return CoreUse{.machine = BootId().value_or(HostName()),
                 .process = fmt::format("{} {} {}", LinkTo("/proc/self/ns/pid"), getpid(),
                                        of_ == Of::kThread ? gettid() : 0),
                 .places = places_,
                 .cores = end->cores,
                 .busy = (end->busy - begin_->busy) / wall,
                 .own = (end->own - begin_->own) / wall};
}

std::optional<SharedCores> FullestCores(const std::vector<std::optional<CoreUse>>& ranks) {
  struct Cores {
    double cores = 0, busy = 0, own = 0;
    int ranks = 0;
    std::set<std::string> processes;
  };
  std::map<std::pair<std::string, std::string>, Cores> sets;
  for (const std::optional<CoreUse>& rank : ranks) {
    if (!rank) return std::nullopt;
    Cores& set = sets[{rank->machine, rank->places}];
    ++set.ranks;
    if (!set.processes.insert(rank->process).second) continue;
    set.cores = rank->cores;
    set.busy = std::max(set.busy, rank->busy);  // measured at slightly different times
    set.own += rank->own;
  }
  const auto fullness = [](const SharedCores& cores) {
    const double left = (cores.all - cores.own - cores.others) / cores.all;
    return std::pair(-std::max(left, 0.1), cores.others / cores.all);
  };
  std::optional<SharedCores> fullest;
  for (const auto& [where, set] : sets) {
    const SharedCores shared{set.cores, set.own, std::max(set.busy - set.own, 0.0), set.ranks};
    if (!fullest || fullness(shared) > fullness(*fullest)) fullest = shared;
  }
  return fullest;
}

std::string DescribeCrowd(const SharedCores& cores) {
  const std::string all = cores.all == 1 ? "1 core" : fmt::format("{:.0f} cores", cores.all);
  std::string text;
  if (cores.is_crowded())
    text = fmt::format("the machine was busy: this took {:.1f} of {}, others {:.1f}", cores.own, all,
                       cores.others);
  if (cores.ranks > cores.all)
    text += fmt::format("{}{} ranks shared {}", text.empty() ? "" : "; ", cores.ranks, all);
  return text;
}

}  // namespace windtunnel
