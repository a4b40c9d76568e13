// This machine's name, for messages and files, and an identity by which processes know that they share a
// machine.
#pragma once

#include <optional>
#include <string>

namespace windtunnel {

// "localhost" if it has none.
std::string HostName();

// The same for all processes of a machine, in whatever container, and different from any other machine's; it
// changes at each boot. Machines with the same one share a clock. Nothing if the kernel does not say.
std::optional<std::string> BootId();

}  // namespace windtunnel
