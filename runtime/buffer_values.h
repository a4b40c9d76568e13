// The values of a rank's buffers, moved in and out between programs: as fp32, whatever type the buffer has.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "plan/buffer_pool.h"
#include "plan/plan.h"
#include "runtime/device.h"

namespace windtunnel {

class BufferValues {
 public:
  // All arguments must outlive it. `pool` has the buffers of the rank's role.
  BufferValues(const Plan& plan, int rank, Device& device, const BufferPool& pool)
      : plan_(plan), role_(plan.RoleOf(rank)), rank_(rank), device_(device), pool_(pool) {}

  // The values of a slice of an fp32, 16-bit or packed buffer. They may be valid only until the next call.
  // Errors, here and below: the device's, when a copy fails.
  Result<std::span<const float>> Get(const Slice& slice) const;
  // Writes the values of a slice, rounded to nearest. REQUIRES: as many values as the slice has elements.
  Status Set(const Slice& slice, std::span<const float> values);

 private:
  DType TypeOf(const Slice& slice) const { return role_.buffers[static_cast<size_t>(slice.buffer)].dtype; }
  int PositionOn(AxisId axis) const { return plan_.axes[axis].position_of_rank[rank_]; }
  // The elements of a slice of a buffer of T; on a device with memory of its own in `fetched`.
  template <typename T>
  Result<std::span<const T>> Fetch(const Slice& slice, std::vector<T>& fetched) const;
  template <typename T>
  Status Write(const Slice& slice, std::span<const T> values);
  Status CopyAndWait(void* to, const void* from, Bytes bytes) const;
  Slice PackedElements(const Slice& slice) const;
  Result<std::span<const float>> UnpackedValues(const Slice& slice) const;
  Status WritePacked(const Slice& slice, std::span<const float> values);
  // The same of 16-bit buffers, converted.
  template <typename T>
  Result<std::span<const float>> FetchFloats(const Slice& slice) const;
  template <typename T>
  Status WriteRounded(const Slice& slice, std::span<const float> values);

  const Plan& plan_;
  const Role& role_;
  int rank_;
  Device& device_;
  const BufferPool& pool_;
  mutable std::vector<float> fetched_;
};

}  // namespace windtunnel
