#include "base/host_name.h"

#include <unistd.h>

namespace windtunnel {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] != 0 ? name : "localhost";
}

}  // namespace windtunnel
