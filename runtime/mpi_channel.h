// A group's MPI communicator, as the algorithms see it: small messages (runtime/message_channel.h), and
// requests that are waited for with a deadline.
#pragma once

#include <mpi/mpi.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/message_channel.h"

namespace windtunnel {

// One thread at a time uses a channel; Abort may come from any.
//
// MPI does not notify anybody, so a thread that waits for it polls: without pause where the rank does nothing
// else meanwhile (yielding where other ranks share the core), else sparingly, since polling takes core time
// from the rank's computation.
class MpiChannel : public MessageChannel {
 public:
  using Clock = std::chrono::steady_clock;

  // Messages up to this many bytes leave at once, whatever the peers do: Open MPI's eager limit for shared
  // memory (btl_vader_eager_limit, 4 KiB; that of TCP is larger) less its header and the message's.
  static constexpr int64_t kEagerBytes = 4000;

  // Takes over `communicator`. `shares_core`: with other ranks. `should_give_up` is asked about ten times a
  // second while the channel waits.
  MpiChannel(MPI_Comm communicator, bool shares_core, std::function<Status()> should_give_up);
  // Gives what was sent some time to leave.
  ~MpiChannel() override;

  MPI_Comm communicator() const { return communicator_; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(received_.size()); }

  // `waited_for`: whether the rank does nothing else meanwhile, read until the next SetLimits.
  // Null: it does something else.
  void SetLimits(Clock::time_point deadline, const std::atomic<bool>* waited_for);
  // Whether Stage and SendStaged would return at once now.
  bool HasRoom();

  Status Stage(const Fingerprint& fingerprint, const void* data, size_t bytes) override;
  Status SendStaged(int peer) override;
  Result<void*> Receive(int peer, const Fingerprint& expected) override;

  // Calls `start`, which makes requests, under the library's lock.
  Status Start(const std::function<int()>& start);
  // Waits until all requests are done. `what` says in errors what was waited for.
  Status Await(std::span<MPI_Request> requests, const std::string& what);
  // Start, then Await.
  Status Run(std::span<MPI_Request> requests, const std::function<int()>& start, const std::string& what);

  // Makes the wait in progress and all later ones fail at once. From any thread.
  void Abort() { aborted_ = true; }

 private:
  // A message that was sent, kept until all peers have it.
  struct Outgoing {
    Message message;
    std::vector<MPI_Request> sends;
  };
  // More than the messages that an exchange may have in flight: two pieces to each of seven peers
  // (runtime/direct.cc).
  static constexpr size_t kOutgoing = 16;

  Result<bool> Test(std::span<MPI_Request> requests);
  void Pause(Clock::duration waited) const;

  MPI_Comm communicator_;
  bool shares_core_;
  int rank_ = 0;
  std::function<Status()> should_give_up_;
  Clock::time_point deadline_;
  const std::atomic<bool>* waited_for_ = nullptr;
  std::vector<std::unique_ptr<Outgoing>> outgoing_;
  size_t staged_ = 0;  // into outgoing_
  size_t staged_bytes_ = 0;
  std::vector<std::unique_ptr<Message>> received_;  // by peer, made when first needed
  std::atomic<bool> aborted_ = false;
};

}  // namespace windtunnel
