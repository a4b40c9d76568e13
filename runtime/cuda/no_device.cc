// For builds without a CUDA toolkit.
#include "runtime/cuda/device.h"

namespace windtunnel {

const std::vector<CudaDeviceInfo>& CudaDevices() {
  static const std::vector<CudaDeviceInfo> none;
  return none;
}

Status CheckCudaDevice() { return Failed("cluster.device: no CUDA device was found"); }

Result<std::unique_ptr<Device>> MakeCudaDevice(int) { return tl::unexpected(CheckCudaDevice().error()); }

std::map<std::string, std::string> CudaLibraries() { return {}; }

Result<Bytes> CudaMemoryInUse(int) { return tl::unexpected(CheckCudaDevice().error()); }

}  // namespace windtunnel
