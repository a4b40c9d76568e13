// Where an allocator's memory comes from: real memory in the runtime, none in the simulator.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/units.h"

namespace windtunnel {

// Memory in segments. Addresses are distinct, aligned to 512 B and at least `bytes` apart.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  // Failed when the memory is exhausted.
  virtual Result<uint64_t> Reserve(Bytes bytes) = 0;
  // REQUIRES: `address` is from Reserve(bytes) and not released yet.
  virtual void Release(uint64_t address, Bytes bytes) = 0;

  // Reserves addresses without memory, for expandable segments. They stay valid as long as the source exists.
  virtual Result<uint64_t> ReserveAddresses(Bytes bytes) = 0;
  // Maps memory to a part of reserved addresses; if it fails (Failed), to none of them.
  // REQUIRES: whole multiples of 2 MiB from the start of the addresses.
  virtual Status Map(uint64_t address, Bytes bytes) = 0;
  // REQUIRES: mapped, whole multiples of 2 MiB from the start of the addresses.
  virtual void Unmap(uint64_t address, Bytes bytes) = 0;
};

// Hands out addresses without memory behind them, up to a capacity.
class VirtualSegmentSource : public SegmentSource {
 public:
  explicit VirtualSegmentSource(Bytes capacity = Bytes::Max()) : capacity_(capacity) {}
  Result<uint64_t> Reserve(Bytes bytes) override;
  void Release(uint64_t address, Bytes bytes) override;
  Result<uint64_t> ReserveAddresses(Bytes bytes) override;
  Status Map(uint64_t address, Bytes bytes) override;
  void Unmap(uint64_t address, Bytes bytes) override;

  Bytes used() const { return used_; }

 private:
  Bytes capacity_;
  Bytes used_;
  uint64_t next_ = 1ULL << 40;
};

}  // namespace windtunnel
