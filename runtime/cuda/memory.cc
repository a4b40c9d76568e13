#include "runtime/cuda/memory.h"

#include <cuda.h>

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "runtime/cuda/status.h"

namespace windtunnel::cuda {
namespace {

constexpr int64_t kPage = int64_t{2} << 20;

std::string FreeNow() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return "";
  return fmt::format(", {} of {} are free", FormatBytes(Bytes(static_cast<int64_t>(free))),
                     FormatBytes(Bytes(static_cast<int64_t>(total))));
}

}  // namespace

struct DeviceMemory::Driver {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
};

DeviceMemory::~DeviceMemory() {
  for (const auto& [address, bytes] : segments_) cudaFree(reinterpret_cast<void*>(address));
  if (driver_ == nullptr) return;
  for (const auto& [address, handle] : pages_) {
    driver_->unmap(address, kPage);
    driver_->release(handle);
  }
  for (const auto& [address, bytes] : ranges_) driver_->free(address, static_cast<size_t>(bytes.count()));
  delete driver_;
}

Result<uint64_t> DeviceMemory::Reserve(Bytes bytes) {
  void* address = nullptr;
  const cudaError_t error = cudaMalloc(&address, static_cast<size_t>(bytes.count()));
  if (error != cudaSuccess) {
    (void)cudaGetLastError();  // running out of memory leaves the device usable
    return Failed("cudaMalloc of {}: {} ({}){}", FormatBytes(bytes), cudaGetErrorString(error),
                  static_cast<int>(error), FreeNow());
  }
  segments_[reinterpret_cast<uint64_t>(address)] = bytes;
  return reinterpret_cast<uint64_t>(address);
}

void DeviceMemory::Release(uint64_t address, Bytes) {
  WT_CHECK(segments_.erase(address) == 1);
  cudaFree(reinterpret_cast<void*>(address));
}

Result<const DeviceMemory::Driver*> DeviceMemory::driver() {
  if (driver_ != nullptr) return driver_;
  auto driver = std::make_unique<Driver>();
  const auto load = [](const char* name, auto& function) -> Status {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    WT_RETURN_IF_ERROR(Check(error, "cudaGetDriverEntryPoint"));
    if (found == nullptr) return Failed("the driver has no {}", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    return Ok();
  };
  WT_RETURN_IF_ERROR(load("cuMemAddressReserve", driver->reserve));
  WT_RETURN_IF_ERROR(load("cuMemAddressFree", driver->free));
  WT_RETURN_IF_ERROR(load("cuMemCreate", driver->create));
  WT_RETURN_IF_ERROR(load("cuMemRelease", driver->release));
  WT_RETURN_IF_ERROR(load("cuMemMap", driver->map));
  WT_RETURN_IF_ERROR(load("cuMemUnmap", driver->unmap));
  WT_RETURN_IF_ERROR(load("cuMemSetAccess", driver->set_access));
  driver_ = driver.release();
  return driver_;
}

Result<uint64_t> DeviceMemory::ReserveAddresses(Bytes bytes) {
  WT_ASSIGN_OR_RETURN(const Driver* driver, this->driver());
  const Bytes rounded = bytes.RoundedUpTo(Bytes(kPage));
  CUdeviceptr address = 0;
  if (driver->reserve(&address, static_cast<size_t>(rounded.count()), kPage, 0, 0) != CUDA_SUCCESS)
    return Failed("{} of addresses are not to be had", FormatBytes(rounded));
  ranges_[address] = rounded;
  return address;
}

// Maps page by page, so that each page can be returned separately.
Status DeviceMemory::Map(uint64_t address, Bytes bytes) {
  WT_ASSIGN_OR_RETURN(const Driver* driver, this->driver());
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal_;
  const auto give_up = [&](uint64_t until) {
    if (until > address) Unmap(address, Bytes(static_cast<int64_t>(until - address)));
    return Failed("{} of device memory: out of memory{}", FormatBytes(bytes), FreeNow());
  };
  for (int64_t done = 0; done < bytes.count(); done += kPage) {
    const uint64_t page = address + static_cast<uint64_t>(done);
    CUmemGenericAllocationHandle handle = 0;
    if (driver->create(&handle, kPage, &properties, 0) != CUDA_SUCCESS) return give_up(page);
    if (driver->map(page, kPage, 0, handle, 0) != CUDA_SUCCESS) {
      driver->release(handle);
      return give_up(page);
    }
    pages_[page] = handle;
  }
  if (!GrantAccess(address, bytes)) return give_up(address + static_cast<uint64_t>(bytes.count()));
  return Ok();
}

Status DeviceMemory::GrantAccess(uint64_t address, Bytes bytes) {
  std::vector<CUmemAccessDesc> access(reached_by_.size());
  for (size_t i = 0; i < access.size(); ++i) {
    access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[i].location.id = reached_by_[i];
    access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  if (driver_->set_access(address, static_cast<size_t>(bytes.count()), access.data(), access.size()) !=
      CUDA_SUCCESS)
    return Failed("{} of device memory cannot be reached", FormatBytes(bytes));
  return Ok();
}

Status DeviceMemory::LetReach(int ordinal) {
  if (std::find(reached_by_.begin(), reached_by_.end(), ordinal) != reached_by_.end()) return Ok();
  reached_by_.push_back(ordinal);
  for (const auto& [address, handle] : pages_) WT_RETURN_IF_ERROR(GrantAccess(address, Bytes(kPage)));
  return Ok();
}

void DeviceMemory::Unmap(uint64_t address, Bytes bytes) {
  cudaDeviceSynchronize();  // kernels may still use the pages
  for (int64_t done = 0; done < bytes.count(); done += kPage) {
    const auto page = pages_.find(address + static_cast<uint64_t>(done));
    WT_CHECK(page != pages_.end());
    driver_->unmap(page->first, kPage);
    driver_->release(page->second);
    pages_.erase(page);
  }
}

PinnedMemory::~PinnedMemory() {
  for (const auto& [address, bytes] : segments_) cudaFreeHost(reinterpret_cast<void*>(address));
}

Result<uint64_t> PinnedMemory::Reserve(Bytes bytes) {
  void* address = nullptr;
  const cudaError_t error = cudaMallocHost(&address, static_cast<size_t>(bytes.count()));
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return Failed("cudaMallocHost of {}: {} ({})", FormatBytes(bytes), cudaGetErrorString(error),
                  static_cast<int>(error));
  }
  segments_[reinterpret_cast<uint64_t>(address)] = bytes;
  return reinterpret_cast<uint64_t>(address);
}

void PinnedMemory::Release(uint64_t address, Bytes) {
  WT_CHECK(segments_.erase(address) == 1);
  cudaFreeHost(reinterpret_cast<void*>(address));
}

}  // namespace windtunnel::cuda
