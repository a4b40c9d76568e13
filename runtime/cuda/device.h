// The cuda device: an NVIDIA GPU whose compute stream runs the operators of plan/ops.h. It is declared in
// every build; a build without a CUDA toolkit never finds a device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "runtime/device.h"

namespace windtunnel {

struct CudaDeviceInfo {
  std::string name = {};  // "NVIDIA H200"
  int multiprocessors = 0;
  Bytes memory = {};
  std::string uuid = {};
  int64_t clock_khz = 0, memory_clock_khz = 0;
  int driver = 0;  // the driver's CUDA version: 13000
};

// The name of the profile with this device's measurements: "h200-sxm-141g" if the project has a datasheet of
// it (cost_models/profiles), else a name derived from the device's own.
std::string CudaProfileName(const CudaDeviceInfo& device);

// The devices that this process may use; the driver is asked once. Empty if there are none, or no driver.
const std::vector<CudaDeviceInfo>& CudaDevices();

// Ok, or the error of a scenario that asks for a device: "cluster.device: no CUDA device was found", with the
// reason if it is known.
Status CheckCudaDevice();

// Makes device `ordinal`, with its context, cuBLASLt and one stream, and makes it the calling thread's
// current device. Failed: no such device, a library that is missing or has a wrong version, a driver that is
// too old.
Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal);

// The versions that the device would use: name -> version of driver, runtime, cuBLASLt and cuDNN, as far as
// they are found.
std::map<std::string, std::string> CudaLibraries();

// Bytes of the device's memory in use by all processes, as the driver counts them; initialises nothing on the
// device. Failed: not known.
Result<Bytes> CudaMemoryInUse(int ordinal);

}  // namespace windtunnel
