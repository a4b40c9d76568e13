// A communicator carries the collectives of one process group. Operators run asynchronously, one after the other in the order of
// submission, on a thread (or stream) of the group's own, so they overlap with whatever the caller computes.
//
//   uint64_t ticket = communicator->Submit(op.kind, reads, writes, op.name);
//   … compute …
//   WT_RETURN_IF_ERROR(communicator->Wait(ticket));
//
// An operator may wait for those of other communicators of its rank, without the caller's waiting for them:
//
//   uint64_t scattered = shards->Submit(reduce_scatter, …);
//   const Prerequisite after[] = {{shards, scattered}};
//   replicas->Submit(all_reduce, …, "bucket 0", after);
//
// Nothing hangs: an operator that has not completed by its deadline, or whose peer has gone, fails with a message that names
// the rank, the operator, its sequence number and what it waited for; every later operator fails at once.
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

// An operator that must have finished before another one, of another communicator of the same rank, begins.
struct Prerequisite {
  Communicator* communicator = nullptr;
  uint64_t ticket = 0;
};

// A communicator's operators as those of others wait for them. It may outlive the communicator, whose end fails whatever has not
// finished. From any thread.
class Tickets {
 public:
  virtual ~Tickets() = default;
  virtual bool IsDone(uint64_t ticket) = 0;  // finished or failed
  // Blocks until `ticket` and all before it are done, and runs in the calling thread what is to be done for that.
  virtual Status Wait(uint64_t ticket) = 0;
  // Blocks likewise, but leaves the work to the communicator's own thread, and ends with an error when `given_up` is set: whoever
  // sets it calls Wake.
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

  // Starts `kind` (a Collective, Send or Receive) once everything submitted before has finished, and everything in `after`, whose
  // errors become its own. Does not wait for either (threads whose devices have queues wait for each other: thread_communicator.h).
  // Tickets count up from 1.
  // The operands stay valid and untouched until the ticket is done. Reads and writes as plan/op.h documents.
  virtual uint64_t Submit(const OpKind& kind, std::span<const TensorRef> reads,
                          std::span<const TensorRef> writes, std::string_view name,
                          std::span<const Prerequisite> after = {}) = 0;
  // Blocks until `ticket` and all before it are done. REQUIRES: ticket came from Submit.
  virtual Status Wait(uint64_t ticket) = 0;
  // REQUIRES: Wait(ticket) returned success, and fewer tickets were submitted since than times are kept of.
  virtual Times TimesOf(uint64_t ticket) const = 0;
  // Times of so many tickets are kept from now on, or of 4,096, as without it. REQUIRES: all that was submitted is done, and its times are
  // not asked for any more.
  virtual void KeepTimes(uint64_t tickets) = 0;
  // For whom an operator of this communicator is a prerequisite.
  virtual std::shared_ptr<Tickets> tickets() = 0;
  // This, where operators run in a queue of the device; null where threads of the host run them.
  virtual DeviceCommunicator* on_device() { return nullptr; }
};

// One whose operators are in a queue of the device: what it waits for and who waits for it is said to queues, not to threads.
class DeviceCommunicator : public Communicator {
 public:
  // Its own, in which the work that operators wait for is to be awaited (DeviceQueues::WaitFor) before Submit.
  virtual DeviceQueues::Queue queue() const = 0;
  // Work issued to `queue` from now on begins when `ticket` is done. Errors: the ticket's, if it has failed.
  virtual Status LetWait(DeviceQueues::Queue queue, uint64_t ticket) = 0;
  DeviceCommunicator* on_device() override { return this; }
};

struct GlooOptions {
  std::string name;  // of the group: a prefix of its keys in the store
  int rank = 0;      // within the group
  int size = 1;
  std::string hostname = "127.0.0.1";         // the interface to listen on
  std::chrono::milliseconds timeout{60'000};  // of connecting and of every operator
  // A Wait for a small message polls the socket this long before it sleeps: a sleeping core wakes later than the message comes.
  // 0 where ranks share cores.
  std::chrono::microseconds spin{50};
};

// Connects the group's ranks through `store` (which must outlive the communicator). Every rank of the group calls it.
Result<std::unique_ptr<Communicator>> MakeGlooCommunicator(Store& store, const GlooOptions& options);
std::string GlooVersion();

struct MpiOptions {
  std::string name;  // of the group: a prefix of its keys in the store
  int rank = 0;      // within the group
  int size = 1;
  std::chrono::milliseconds timeout{60'000};  // of connecting and of every operator
  bool shares_core = false;                   // with another rank, so waiting must not keep the core busy
};

// The same over MPI. Every process is one rank, started by windtunnel's launcher, mpirun or srun; it calls EndMpi (runtime/mpi.h) when all
// its communicators are gone. Once an operator has failed, every later one of the process does.
Result<std::unique_ptr<Communicator>> MakeMpiCommunicator(Store& store, const MpiOptions& options);

}  // namespace windtunnel
