// A communicator carries the collectives of one process group. Operators run asynchronously, one after the
// other in the order of submission, on a thread (or stream) of the group's own, so they overlap with whatever
// the caller computes.
//
//   uint64_t ticket = communicator->Submit(op.kind, reads, writes, op.name);
//   … compute …
//   WT_RETURN_IF_ERROR(communicator->Wait(ticket));
//
// An operator may wait for operators of the rank's other communicators, without blocking the caller:
//
//   uint64_t scattered = shards->Submit(reduce_scatter, …);
//   const Prerequisite after[] = {{shards, scattered}};
//   replicas->Submit(all_reduce, …, "bucket 0", after);
//
// Nothing hangs: an operator that has not completed by its deadline, or whose peer has gone, fails with a
// message that names the rank, the operator, its sequence number and what it waited for; every later operator
// fails at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/op.h"
#include "runtime/device.h"
#include "runtime/device_queues.h"
#include "runtime/store.h"

namespace windtunnel {

class Communicator;
class DeviceCommunicator;

// An operator that must have finished before an operator of another communicator of the same rank begins.
struct Prerequisite {
  Communicator* communicator = nullptr;
  uint64_t ticket = 0;
};

// A communicator's operators, as other communicators' operators wait for them. It may outlive the
// communicator, whose end fails every operator that has not finished. Any thread may call it.
class Tickets {
 public:
  virtual ~Tickets() = default;
  virtual bool IsDone(uint64_t ticket) = 0;  // finished or failed
  // Blocks until `ticket` and all before it are done. The calling thread runs those operators
  // itself where nobody else does.
  virtual Status Wait(uint64_t ticket) = 0;
  // Blocks likewise, but leaves the work to the communicator's own thread. Returns an error once `given_up`
  // is set; whoever sets it calls Wake.
  virtual Status Await(uint64_t ticket, const std::atomic<bool>& given_up) = 0;
  virtual void Wake() = 0;
};

class Communicator {
 public:
  using Clock = std::chrono::steady_clock;
  struct Times {
    Clock::time_point start, end;  // when the operator began and finished on this rank
  };

  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;

  // Starts `kind` (a Collective, Send or Receive) once everything submitted before and everything in `after`
  // has finished. Errors of `after` become its own. Does not wait for either (but threads whose devices have
  // queues wait for each other: thread_communicator.h). Tickets count up from 1.
  // The operands stay valid and untouched until the ticket is done. Reads and writes as plan/ops.h documents.
  virtual uint64_t Submit(const OpKind& kind, std::span<const TensorRef> reads,
                          std::span<const TensorRef> writes, std::string_view name,
                          std::span<const Prerequisite> after = {}) = 0;
  // Blocks until `ticket` and all before it are done. REQUIRES: ticket came from Submit.
  virtual Status Wait(uint64_t ticket) = 0;
  // REQUIRES: Wait(ticket) returned success, and fewer tickets were submitted since than KeepTimes keeps.
  virtual Times TimesOf(uint64_t ticket) const = 0;
  // From now on, keeps the times of the last `tickets` tickets, at least of 4,096, which is the default.
  // REQUIRES: everything submitted is done, and nobody asks for its times any more.
  virtual void KeepTimes(uint64_t tickets) = 0;
  // For communicators to which an operator of this one is a prerequisite.
  virtual std::shared_ptr<Tickets> tickets() = 0;
  // This communicator where its operators run in a queue of the device; null where
  // threads of the host run them.
  virtual DeviceCommunicator* on_device() { return nullptr; }
};

// A communicator whose operators run in a queue of the device. Queues wait for queues, in both directions; no
// host thread waits for a prerequisite.
class DeviceCommunicator : public Communicator {
 public:
  // The communicator's own queue. Before Submit, the caller makes it wait for the work that the operator
  // depends on (DeviceQueues::WaitFor).
  virtual DeviceQueues::Queue queue() const = 0;
  // Work issued to `queue` from now on begins when `ticket` is done. Called on the thread that submits. Errors:
  // the ticket's, if it has failed.
  virtual Status LetWait(DeviceQueues::Queue queue, uint64_t ticket) = 0;
  DeviceCommunicator* on_device() override { return this; }
};

struct GlooOptions {
  std::string name;  // of the group: a prefix of its keys in the store
  int rank = 0;      // within the group
  int size = 1;
  std::string hostname = "127.0.0.1";         // the interface to listen on
  std::chrono::milliseconds timeout{60'000};  // of connecting and of every operator
  // A Wait for a small message polls the socket for this long before it sleeps, because waking a sleeping
  // core takes longer than the message. 0 where ranks share cores.
  std::chrono::microseconds spin{50};
};

// Connects the group's ranks through `store` (which must outlive the communicator). Every rank of the group
// calls it.
Result<std::unique_ptr<Communicator>> MakeGlooCommunicator(Store& store, const GlooOptions& options);
std::string GlooVersion();

struct MpiOptions {
  std::string name;  // of the group: a prefix of its keys in the store
  int rank = 0;      // within the group
  int size = 1;
  std::chrono::milliseconds timeout{60'000};  // of connecting and of every operator
  bool shares_core = false;                   // with another rank, so waiting must not keep the core busy
};

// The same over MPI. Every process is one rank, started by windtunnel's launcher, mpirun or srun. It calls
// EndMpi (runtime/mpi.h) when all its communicators are gone. Once an operator has failed, every later
// operator of the process fails.
Result<std::unique_ptr<Communicator>> MakeMpiCommunicator(Store& store, const MpiOptions& options);

}  // namespace windtunnel
