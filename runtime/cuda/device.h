// The cuda device: an NVIDIA GPU whose compute stream runs the operators of plan/op.h. Declared everywhere; where no toolkit was found when
// this was built, no device is ever found.
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
  int compute_capability = 0;
  int multiprocessors = 0;
  Bytes memory = {};
  std::string uuid = {};
  int64_t clock_khz = 0, memory_clock_khz = 0;
  int driver = 0;  // the CUDA version that the driver has: 13000
};

// The profile that measurements of such a device go by: "h200-sxm-141g" where the project has a datasheet of it (cost_models/profiles), else
// a name made of the device's own.
std::string CudaProfileName(const CudaDeviceInfo& device);

// The devices that this process may use; the driver is asked once. Empty: none, or no driver.
const std::vector<CudaDeviceInfo>& CudaDevices();

// Ok, or the error of a scenario that wants a device: "cluster.device: no CUDA device was found", and why where that is known.
Status CheckCudaDevice();

// Device `ordinal`, with its context, cuBLASLt and one stream; the calling thread's from now on. Failed: no such device, a library that
// is missing or of a wrong version, a driver that is too old.
Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal);

// What is in use where the device would be made: name -> version of driver, runtime, cuBLASLt and NCCL, as far as they are there.
std::map<std::string, std::string> CudaLibraries();

// Bytes of the device's memory that processes use, as the driver counts them; nothing is initialised for it. Failed: not known.
Result<Bytes> CudaMemoryInUse(int ordinal);

}  // namespace windtunnel
