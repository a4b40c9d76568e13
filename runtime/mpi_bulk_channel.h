// Large messages over MPI: nonblocking sends and receives of pieces of the operands. Between ranks of one
// machine Open MPI copies a piece straight from the sender's memory, in the receiver's call.
#pragma once

#include <mpi/mpi.h>

#include <deque>
#include <optional>

#include "runtime/bulk_channel.h"
#include "runtime/mpi_channel.h"

namespace windtunnel {

// Before an operator begins, its ranks have made sure that they are at the same one (MpiCollectives::Agree).
class MpiBulkChannel : public BulkChannel {
 public:
  // Tags that an operator may use: those that every MPI has (MPI_TAG_UB is at least 32,767), less those of
  // other messages.
  static constexpr int kTags = 32'000;

  explicit MpiBulkChannel(MpiChannel& channel) : channel_(channel) {}

  int rank() const override { return channel_.rank(); }
  int size() const override { return channel_.size(); }

  void BeginOperator() override;
  uint64_t TagOf(const Fingerprint&) const override;
  Region& RegionOf(const void* data, int64_t bytes) override;

  void PostReceive(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) override;
  void PostSend(Region& region, int peer, uint64_t tag, int64_t offset, int64_t bytes) override;
  void Flush() override {}
  Status WaitReceived(Region& region, int peer) override;
  Status WaitSent(Region& region, int peer) override;

 private:
  struct Transfer {
    int peer = 0;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  using Transfers = std::deque<Transfer>;
  struct Operand : Region {
    char* data = nullptr;
    Transfers receives, sends;
  };

  template <typename Start>
  void Post(Transfers& transfers, int peer, Start start);
  Status WaitForFirst(Transfers& transfers, int peer, const char* what);

  MpiChannel& channel_;
  std::deque<Operand> operands_;  // of the operator in progress
  std::optional<Error> failure_;  // of the first post that failed
};

}  // namespace windtunnel
