// The cuda device's kernels on blocks of fibers (emulator/block.h), in the calling thread and in the host's memory: the same dispatch,
// the same launches, the same arithmetic but for the device's fast exponential and division. For tests; matrix products are the cpu
// device's.
#pragma once

#include <memory>

#include "runtime/device.h"

namespace windtunnel {

// Faults that kernels report come back from Launch at once.
std::unique_ptr<Device> MakeEmulatedDevice();

}  // namespace windtunnel
