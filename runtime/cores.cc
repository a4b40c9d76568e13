#include "runtime/cores.h"

#include <unistd.h>

#include <algorithm>

namespace windtunnel {

int64_t UsableCores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));
}

Status CheckShareOfCores(int64_t ranks) {
  constexpr int64_t kMostRanksOfACore = 64;  // more would end in memory or processes running out
  if (ranks <= kMostRanksOfACore * UsableCores()) return Ok();
  return Unsupported(
      "{} ranks would share this machine's cores ({}), expected at most {} on each; `windtunnel predict` "
      "needs none",
      ranks, UsableCores(), kMostRanksOfACore);
}

std::string UsableCoresText() {
  cpu_set_t allowed;
  std::string text;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) text += CPU_ISSET(cpu, &allowed) ? '1' : '0';
  return text.substr(0, text.find_last_of('1') + 1);
}

bool SharesCores(const std::string& own, const std::vector<std::string>& all) {
  std::string cores = own;
  int64_t processes = 0;
  for (const std::string& other : all) {
    bool meets = false;
    for (size_t i = 0; i < std::min(own.size(), other.size()); ++i) meets |= own[i] == '1' && other[i] == '1';
    if (!meets) continue;
    ++processes;
    cores.resize(std::max(cores.size(), other.size()), '0');
    for (size_t i = 0; i < other.size(); ++i)
      if (other[i] == '1') cores[i] = '1';
  }
  return processes > std::count(cores.begin(), cores.end(), '1');
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
