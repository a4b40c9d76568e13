// The name of this machine, as messages and files say it, and as processes know that they are on one.
#pragma once

#include <optional>
#include <string>

namespace windtunnel {

// "localhost" where it has none.
std::string HostName();

// The same for all processes of a machine, in whatever container, and no other's until it boots again: machines that have the same one share
// a clock. Nothing where the kernel does not say.
std::optional<std::string> BootId();

}  // namespace windtunnel
