// The device's and the host's memory as the caching allocator's segments.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <vector>

#include "plan/segment_source.h"

namespace windtunnel::cuda {

// cudaMalloc, on the current device. Segments that grow use the driver's virtual memory, which needs no library of its own: reached
// through cudaGetDriverEntryPoint.
class DeviceMemory : public SegmentSource {
 public:
  explicit DeviceMemory(int ordinal) : ordinal_(ordinal) {}
  ~DeviceMemory() override;
  // Failed: "cudaMalloc of 2.0 GiB: out of memory (2), 1.1 GiB of 139.8 GiB are free".
  Result<uint64_t> Reserve(Bytes bytes) override;
  void Release(uint64_t address, Bytes bytes) override;
  Result<uint64_t> ReserveAddresses(Bytes bytes) override;
  Status Map(uint64_t address, Bytes bytes) override;
  void Unmap(uint64_t address, Bytes bytes) override;
  // Another device may reach what is mapped and what will be. cudaMalloc's segments need no such permission.
  Status LetReach(int ordinal);

 private:
  struct Driver;
  Result<const Driver*> driver();
  Status GrantAccess(uint64_t address, Bytes bytes);

  int ordinal_;
  std::vector<int> reached_by_ = {ordinal_};  // devices
  std::map<uint64_t, Bytes> segments_;
  std::map<uint64_t, Bytes> ranges_;              // of addresses
  std::map<uint64_t, unsigned long long> pages_;  // 2 MiB each, by address: the driver's handle
  const Driver* driver_ = nullptr;
};

// cudaMallocHost: pages that the device reads and writes by itself.
class PinnedMemory : public SegmentSource {
 public:
  ~PinnedMemory() override;
  Result<uint64_t> Reserve(Bytes bytes) override;
  void Release(uint64_t address, Bytes bytes) override;
  // Its policy is always Windtunnel's, which grows nothing.
  Result<uint64_t> ReserveAddresses(Bytes) override { return Unsupported("pinned memory does not grow"); }
  Status Map(uint64_t, Bytes) override { return Unsupported("pinned memory does not grow"); }
  void Unmap(uint64_t, Bytes) override {}

 private:
  std::map<uint64_t, Bytes> segments_;
};

}  // namespace windtunnel::cuda
