// The operators of one group, run in the order of submission by whichever thread is best placed to:
//
// * a small operator's first half runs inside Submit when nothing is before it: its message leaves at once,
// from this thread;
// * Wait runs what is still to be done itself, instead of waking another thread to do it and to be woken by
// that;
// * whatever nobody waits for is run by the queue's own thread, so that it overlaps with what the caller
// computes.
//
//   OperatorQueue queue(&runner);
//   uint64_t ticket = queue.Submit([&](GroupOperator& op) { return DescribeOperator(…, op); });
//   WT_RETURN_IF_ERROR(queue.Wait(ticket));
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/result.h"
#include "runtime/communicator.h"
#include "runtime/group_operator.h"

namespace windtunnel {

// What operators do. One thread at a time calls it.
class OperatorRunner {
 public:
  virtual ~OperatorRunner() = default;
  // Whether Begin does all that peers wait for, without blocking: then Finish may come as late as the
  // caller's Wait.
  virtual bool CanBegin(const GroupOperator& op) = 0;
  virtual Status Begin(GroupOperator& op) = 0;
  // The whole operator, or what is left of it when it `has_begun`. `waited_for`: the caller does nothing else
  // meanwhile.
  virtual Status Finish(GroupOperator& op, bool has_begun, bool waited_for) = 0;
  // Makes the call in progress fail soon. From any thread.
  virtual void Abort() = 0;
};

class OperatorQueue {
 public:
  using Clock = Communicator::Clock;

  explicit OperatorQueue(OperatorRunner* runner);  // the runner must outlive the queue
  // Aborts what is in progress.
  ~OperatorQueue();

  // `describe` fills in the operator; its error becomes the operator's. Tickets count up from 1.
  template <typename Describe>
  uint64_t Submit(Describe describe);
  Status Wait(uint64_t ticket);
  Communicator::Times TimesOf(uint64_t ticket) const { return times_[ticket % kTimes]; }

 private:
  static constexpr uint64_t kTimes = 4096;     // tickets whose times are kept
  static constexpr uint64_t kOperators = 256;  // that may wait; Submit waits for a place

  struct Entry {
    GroupOperator op;
    Status described;
    bool has_begun = false;
  };

  Entry& EntryOf(uint64_t ticket) { return entries_[ticket % kOperators]; }
  Entry& Next() { return EntryOf(completed_ + 1); }
  bool Idle() const { return completed_ == submitted_; }
  // Something is there that the queue's own thread should run: all but a lone operator that has begun.
  bool NeedsThread() { return !driven_ && !Idle() && (submitted_ - completed_ > 1 || !Next().has_begun); }

  void AwaitPlace(std::unique_lock<std::mutex>& lock);
  void Admit(std::unique_lock<std::mutex>& lock);
  void RunNext(std::unique_lock<std::mutex>& lock, bool waited_for);
  void Complete(Status status);
  void Work();

  OperatorRunner* runner_;
  std::array<Entry, kOperators> entries_;
  std::array<Communicator::Times, kTimes> times_;

  std::mutex mutex_;  // guards what follows; an entry is the submitter's, then the driver's
  std::condition_variable work_, done_;
  uint64_t submitted_ = 0, completed_ = 0;
  bool driven_ = false;  // a thread is running an operator
  bool stop_ = false;
  std::optional<Error> failure_;  // the first; every later operator shares it
  uint64_t failed_ticket_ = 0;
  std::thread thread_;
};

template <typename Describe>
uint64_t OperatorQueue::Submit(Describe describe) {
  std::unique_lock lock(mutex_);
  AwaitPlace(lock);
  Entry& entry = EntryOf(submitted_ + 1);
  entry.described = describe(entry.op);
  entry.has_begun = false;
  const uint64_t ticket = submitted_ + 1;
  Admit(lock);
  return ticket;
}

}  // namespace windtunnel
