// The transport of large messages between the ranks of a group; runtime/ring.h builds its collectives on it.
// Pieces of memory are sent and received in place, and the caller works on what has arrived while the rest is
// in flight. Every backend with ring collectives has one (gloo_bulk_channel.h, mpi_bulk_channel.h).
//
//   channel.BeginOperator();
//   BulkChannel::Region& x = channel.RegionOf(data, bytes);
//   channel.PostReceive(x, left, tag, offset, part);
//   channel.PostSend(x, right, tag, 0, part);
//   channel.Flush();
//   WT_RETURN_IF_ERROR(channel.WaitReceived(x, left));
#pragma once

#include <cstdint>

#include "base/result.h"
#include "runtime/group_operator.h"

namespace windtunnel {

// One thread at a time uses a channel.
class BulkChannel {
 public:
  // Memory that messages come from and go to.
  class Region {
   protected:
    ~Region() = default;
  };

  virtual ~BulkChannel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void BeginOperator() = 0;
  // The first of an operator's tags. Sends and receives with the same tag match in the order of posting. An
  // operator has one tag for each of its steps, or for each segment that passes a rank.
  virtual uint64_t TagOf(const Fingerprint& fingerprint) const = 0;
  // Valid until the next BeginOperator; the same for the same memory.
  virtual Region& RegionOf(const void* data, int64_t bytes) = 0;

  virtual void PostReceive(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) = 0;
  virtual void PostSend(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) = 0;
  virtual void Flush() = 0;  // what was posted may start only here
  // Waits for one receive (send) of the region to complete: of those from (to) `peer`, the one posted first.
  virtual Status WaitReceived(Region& region, int peer) = 0;
  virtual Status WaitSent(Region& region, int peer) = 0;
};

}  // namespace windtunnel
