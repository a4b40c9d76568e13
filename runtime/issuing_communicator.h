// The base class of the communicators that issue operators to a queue of the device when they are
// submitted, common to all backends. An operator is an entry between two events until the device is
// known to have passed the second.
//
//   class MyCommunicator : public IssuingCommunicator {
//     ~MyCommunicator() override { EndTickets(); … }
//     Status Check(const GroupOperator& op) override { … }
//     Status Issue(const GroupOperator& op, DeviceQueues::Event start) override { …into queue()… }
//   };
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/device_queues.h"
#include "runtime/group_operator.h"

namespace windtunnel {

class IssuingCommunicator : public DeviceCommunicator {
 public:
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  DeviceQueues::Queue queue() const override { return queue_; }
  std::shared_ptr<Tickets> tickets() override;

  uint64_t Submit(const OpKind& kind, std::span<const TensorRef> reads, std::span<const TensorRef> writes,
                  std::string_view name, std::span<const Prerequisite> after) override;
  Status Wait(uint64_t ticket) override;
  Times TimesOf(uint64_t ticket) const override;
  void KeepTimes(uint64_t tickets) override;
  Status LetWait(DeviceQueues::Queue queue, uint64_t ticket) override;

 protected:
  using Clock = Communicator::Clock;

  // An operator that was submitted and is not known to be done.
  struct Entry {
    GroupOperator op;
    DeviceQueues::Event start = DeviceQueues::kNever, end = DeviceQueues::kNever;
    std::optional<Clock::time_point> begun = std::nullopt;  // when whoever looks first saw it begun
  };

  // Rank `rank` of group `name`. `queues` must outlive the communicator.
  IssuingCommunicator(DeviceQueues& queues, std::string name, int rank, int size);
  ~IssuingCommunicator() override = default;

  // Unsupported for an operator that the backend does not carry.
  virtual Status Check(const GroupOperator& op) = 0;
  // Puts the operator into the queue, behind `start`. Errors are complete messages
  // (Where). Called without the lock.
  virtual Status Issue(const GroupOperator& op, DeviceQueues::Event start) = 0;

  Status OpenQueue();  // opens an urgent queue; called before all else
  // Ends the waits of others for this communicator's operators. A destructor calls it first.
  void EndTickets();

  // "rank 0 of group 'world': all_reduce 'bucket 1' (number 7, all_reduce of 1024 x fp32)"
  std::string Where(const GroupOperator& op) const;
  // REQUIRES: the lock. Notes which operators are done, with their times where events still have them. After
  // a failure it notes none: the results of what was in progress are worth nothing.
  void Advance();
  // REQUIRES: the lock. From the first failure on, every operator fails with it.
  void Fail(Error error);

  DeviceQueues& queues_;
  const std::string name_;

  mutable std::mutex mutex_;      // guards what follows
  std::condition_variable wake_;  // of whoever watches: a failure
  std::deque<Entry> entries_;
  std::optional<Error> failure_;

 private:
  class TicketsOf;

  bool IsDone(uint64_t ticket);
  Status AwaitPrerequisites(const GroupOperator& op, std::span<const Prerequisite> after);
  Status IssueBetweenEvents(Entry& entry, std::unique_lock<std::mutex>& lock);

  const int rank_, size_;
  OperatorNumbers numbers_;
  DeviceQueues::Queue queue_ = -1;
  std::shared_ptr<TicketsOf> tickets_;

  uint64_t submitted_ = 0, completed_ = 0;  // guarded by the mutex, too
  static constexpr uint64_t kLeastTimes = 4096;
  std::vector<Times> times_ = std::vector<Times>(kLeastTimes);  // guarded by the mutex, too
};

}  // namespace windtunnel
