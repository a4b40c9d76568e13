#include "runtime/cores.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace windtunnel {
namespace {

// Empty if the system does not tell.
std::vector<int> UsableCpus() {
  cpu_set_t allowed;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  return cpus;
}

}  // namespace

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
  const std::vector<int> cpus = UsableCpus();
  std::string text(cpus.empty() ? 0 : static_cast<size_t>(cpus.back()) + 1, '0');
  for (const int cpu : cpus) text[static_cast<size_t>(cpu)] = '1';
  return text;
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
  CPU_ZERO(&core);
  const std::vector<int> usable = UsableCpus();
  if (usable.empty()) return false;
  CPU_SET(usable[static_cast<size_t>(rank) % usable.size()], &core);
  return true;
}

bool CoreClaims::Claim(int core) {
  sockaddr_un address{.sun_family = AF_UNIX};
  const std::string name = fmt::format("{} core {}", scope_, core);
  name.copy(&address.sun_path[1], sizeof address.sun_path - 1);  // begins with a zero: of no file
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return errno != EADDRINUSE;
  claimed_.push_back(std::move(socket));
  return true;
}

CoreClaims::CoreClaims(int first, int ranks, std::string scope) : first_(first), scope_(std::move(scope)) {
  const std::vector<int> usable = UsableCpus();
  if (usable.empty()) return;
  const size_t count = usable.size();
  std::vector<int> core_of(count, -1);
  std::vector<bool> is_own(count, false);
  std::vector<size_t> wanted;
  for (int rank = first; rank < first + ranks; ++rank) wanted.push_back(static_cast<size_t>(rank) % count);
  for (const size_t place : wanted) {
    if (core_of[place] >= 0 || !Claim(usable[place])) continue;
    core_of[place] = usable[place];
    is_own[place] = true;
  }
  for (const size_t place : wanted) {
    for (size_t next = 1; next < count && core_of[place] < 0; ++next) {
      const size_t other = (place + next) % count;
      if (is_own[other] || !Claim(usable[other])) continue;
      core_of[place] = usable[other];
      is_own[other] = true;
    }
    if (core_of[place] < 0) core_of[place] = usable[place];
    core_of_rank_.push_back(core_of[place]);
  }
}

bool CoreClaims::CoreOf(int rank, cpu_set_t& core) const {
  CPU_ZERO(&core);
  if (core_of_rank_.empty()) return false;
  CPU_SET(core_of_rank_.at(static_cast<size_t>(rank - first_)), &core);
  return true;
}

}  // namespace windtunnel
