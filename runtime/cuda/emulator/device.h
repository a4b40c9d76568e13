// Runs the cuda device's kernels on blocks of fibers (emulator/block.h), in the calling thread and in host
// memory: with the same dispatch, the same launches and the same arithmetic, except for the device's fast
// exponential and division. For tests. GEMMs run on the cpu device.
#pragma once

#include <memory>

#include "runtime/device.h"

namespace windtunnel {

// Launch returns the faults that kernels report at once.
std::unique_ptr<Device> MakeEmulatedDevice();

}  // namespace windtunnel
