// Large messages: Gloo's unbound buffers, which its event loop fills and drains while the operator's thread
// adds up what has come.
//
// Sends and receives are posted to that loop and issued by it. Gloo's send holds its pair's lock while it
// copies megabytes into the socket; when another thread than the loop does that, and the loop finds the pair
// locked, the loop spins, on the very core that the sender needs where a rank has one core, until the
// scheduler's next tick, 4 ms later. On two pinned ranks a 25 MiB all-reduce takes 12.3 ms (p90 15.8) with
// sends from the operator's thread, and 9.4 ms (p90 10.1) with posted ones.
//
//   BulkChannel::Region& x = channel.RegionOf(data, bytes);
//   channel.PostReceive(x, left, tag, offset, part);
//   channel.PostSend(x, right, tag, 0, part);
//   channel.Flush();
//   WT_RETURN_IF_ERROR(channel.WaitReceived(x, left));
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "runtime/gloo_connect.h"
#include "runtime/group_operator.h"

namespace windtunnel {

// One thread at a time uses a channel; Abort may come from any.
class BulkChannel {
 public:
  using Clock = std::chrono::steady_clock;
  struct Region;  // memory that messages come from and go to

  static Result<std::unique_ptr<BulkChannel>> Make(std::shared_ptr<gloo::transport::Device> device,
                                                   std::shared_ptr<gloo::Context> context);
  ~BulkChannel();

  int rank() const;
  int size() const;
  void SetDeadline(Clock::time_point deadline);
  // Whether a peer has left or died, of which waits for it fail within seconds. Called from Gloo's event loop while a wait is in progress.
  void SetIsGone(std::function<bool(int peer)> is_gone);

  // The first of an operator's tags. Sends and receives of one tag match in order of posting, so that ranks
  // which are at different operators never get each other's data. An operator has tags TagOf(…) up to
  // TagOf(…) + 2^24 - 1.
  static uint64_t TagOf(const Fingerprint& fingerprint);

  // Valid until the next BeginOperator. Regions are kept and found again by their memory, so steady states
  // allocate nothing.
  Region& RegionOf(const void* data, int64_t bytes);
  void BeginOperator();

  void PostReceive(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes);
  void PostSend(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes);
  void Flush();  // hands what was posted to the event loop
  // Waits for one receive (send) of the region to complete, in order of arrival. An error names `peer`.
  Status WaitReceived(Region& region, int peer);
  Status WaitSent(Region& region, int peer);

  // Makes the wait in progress and all later ones fail at once. From any thread.
  void Abort();
  // Cuts the connections, so that the peers fail, too.
  void Close();

 private:
  struct Impl;
  explicit BulkChannel(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace windtunnel
