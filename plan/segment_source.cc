#include "plan/segment_source.h"

#include "base/check.h"
#include "base/format.h"

namespace windtunnel {

Result<uint64_t> VirtualSegmentSource::Reserve(Bytes bytes) {
  WT_ASSIGN_OR_RETURN(const uint64_t address, ReserveAddresses(bytes));
  WT_RETURN_IF_ERROR(Map(address, bytes));
  return address;
}

void VirtualSegmentSource::Release(uint64_t address, Bytes bytes) { Unmap(address, bytes); }

Result<uint64_t> VirtualSegmentSource::ReserveAddresses(Bytes bytes) {
  const uint64_t address = next_;
  next_ += static_cast<uint64_t>(bytes.RoundedUpTo(MiB(2)).count());
  return address;
}

Status VirtualSegmentSource::Map(uint64_t, Bytes bytes) {
  if (bytes > capacity_ - used_) {
    return Failed("{} ({} B) asked for, {} of {} reserved", FormatBytes(bytes), bytes.count(),
                  FormatBytes(used_), FormatBytes(capacity_));
  }
  used_ += bytes;
  return Ok();
}

void VirtualSegmentSource::Unmap(uint64_t, Bytes bytes) {
  WT_CHECK_GE(used_.count(), bytes.count());
  used_ -= bytes;
}

}  // namespace windtunnel
