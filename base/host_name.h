// The name of this machine, as messages and files say it.
#pragma once

#include <string>

namespace windtunnel {

// "localhost" where it has none.
std::string HostName();

}  // namespace windtunnel
