// Large messages over Gloo, through its unbound buffers: its event loop fills and drains them while the
// operator's thread adds up what has arrived.
//
// Sends and receives are posted to that loop and issued by it. Gloo's send holds its pair's lock while it
// copies megabytes into the socket. If a thread other than the loop does that and the loop finds the pair
// locked, the loop spins until the scheduler's next tick, 4 ms later; where a rank has one core, it spins on
// the very core that the sender needs. On two pinned ranks a 25 MiB all-reduce takes 12.3 ms (p90 15.8) with
// sends from the operator's thread, and 9.4 ms (p90 10.1) with posted ones.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "runtime/bulk_channel.h"
#include "runtime/gloo_connect.h"

namespace windtunnel {

// Abort may come from any thread.
class GlooBulkChannel : public BulkChannel {
 public:
  using Clock = std::chrono::steady_clock;

  static Result<std::unique_ptr<GlooBulkChannel>> Make(std::shared_ptr<gloo::transport::Device> device,
                                                       std::shared_ptr<gloo::Context> context);
  ~GlooBulkChannel() override;

  int rank() const override;
  int size() const override;
  void SetDeadline(Clock::time_point deadline);
  // `is_gone` tells whether a peer has left or died; waits for such a peer fail within seconds. Gloo's event
  // loop calls it while a wait is in progress.
  void SetIsGone(std::function<bool(int peer)> is_gone);

  // A hash of the whole fingerprint, so that ranks at different operators never get each other's data. Its
  // last 24 bits are zero, to count the operator's steps in.
  uint64_t TagOf(const Fingerprint& fingerprint) const override;
  // Regions are kept and found again by their memory, so steady states allocate nothing.
  Region& RegionOf(const void* data, int64_t bytes) override;
  void BeginOperator() override;

  void PostReceive(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) override;
  void PostSend(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) override;
  void Flush() override;  // hands what was posted to the event loop
  Status WaitReceived(Region& region, int peer) override;
  Status WaitSent(Region& region, int peer) override;

  // Makes the wait in progress and all later ones fail at once. From any thread.
  void Abort();
  // Cuts the connections, so that the peers fail, too.
  void Close();

 private:
  struct Impl;
  explicit GlooBulkChannel(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace windtunnel
