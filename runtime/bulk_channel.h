// How large messages get from rank to rank in a group: what runtime/ring.h builds its collectives of. Pieces of memory are sent and
// received where they lie; what has come is worked on while the rest is under way. Every backend whose collectives go around rings has
// one (gloo_bulk_channel.h, mpi_bulk_channel.h).
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
  // The first of an operator's tags. Sends and receives of one tag match in order of posting. An operator has as many as it has steps,
  // or segments that pass a rank.
  virtual uint64_t TagOf(const Fingerprint& fingerprint) const = 0;
  // Valid until the next BeginOperator; the same for the same memory.
  virtual Region& RegionOf(const void* data, int64_t bytes) = 0;

  virtual void PostReceive(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) = 0;
  virtual void PostSend(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) = 0;
  virtual void Flush() = 0;  // what was posted may be under way only now
  // Waits for one receive (send) of the region to complete; of those from (to) one peer, for the first that was posted.
  virtual Status WaitReceived(Region& region, int peer) = 0;
  virtual Status WaitSent(Region& region, int peer) = 0;
};

}  // namespace windtunnel
