#include "base/host_name.h"

#include <unistd.h>

#include <fstream>

namespace windtunnel {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] != 0 ? name : "localhost";
}

std::optional<std::string> BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (!std::getline(file, id) || id.empty()) return std::nullopt;
  return id;
}

}  // namespace windtunnel
