// Device memory and pinned host memory as segments of the caching allocator.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <vector>

#include "plan/segment_source.h"

namespace windtunnel::cuda {

// cudaMalloc on the current device. Expandable segments use the driver's virtual memory management, found
// through cudaGetDriverEntryPoint, so that the program need not link to the driver library.
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
  // Lets another device access the pages that are mapped, now or later. cudaMalloc's segments need no such
  // permission.
  Status LetReach(int ordinal);

 private:
  struct Driver;
  Result<const Driver*> driver();
  Status GrantAccess(uint64_t address, Bytes bytes);

  int ordinal_;
  std::vector<int> reached_by_ = {ordinal_};  // device ordinals
  std::map<uint64_t, Bytes> segments_;
  std::map<uint64_t, Bytes> ranges_;              // reserved address ranges
  std::map<uint64_t, unsigned long long> pages_;  // the driver's handle of each 2 MiB page, by address
  const Driver* driver_ = nullptr;
};

// cudaMallocHost: pages that the device can access directly.
class PinnedMemory : public SegmentSource {
 public:
  ~PinnedMemory() override;
  Result<uint64_t> Reserve(Bytes bytes) override;
  void Release(uint64_t address, Bytes bytes) override;
  // Its allocator policy is always Windtunnel's, which has no expandable segments.
  Result<uint64_t> ReserveAddresses(Bytes) override { return Unsupported("pinned memory does not grow"); }
  Status Map(uint64_t, Bytes) override { return Unsupported("pinned memory does not grow"); }
  void Unmap(uint64_t, Bytes) override {}

 private:
  std::map<uint64_t, Bytes> segments_;
};

}  // namespace windtunnel::cuda
