// The memory of this machine.
#pragma once

#include "base/units.h"

namespace windtunnel {

// The machine's memory, or the container's limit if that is lower (cgroups, either version).
Bytes MachineMemory();

}  // namespace windtunnel
