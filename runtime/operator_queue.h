// The operators of one group, run in the order of submission by whichever thread is best placed to:
//
// * a small operator's first half runs inside Submit when nothing is before it: its message leaves at once,
// from this thread;
// * Wait runs what is still to be done itself, instead of waking another thread to do it and to be woken by
// that;
// * whatever nobody waits for is run by the queue's own thread, so that it overlaps with what the caller
// computes.
//
// The thread that runs an operator waits for its prerequisites just before it does. This cannot
// deadlock: a prerequisite was submitted before what waits for it, so each wait among the operators of
// one rank is for an earlier one.
//
//   auto queue = std::make_shared<OperatorQueue>(&runner);
//   uint64_t ticket = queue->Submit([&](GroupOperator& op) { return DescribeOperator(…, op); }, {});
//   WT_RETURN_IF_ERROR(queue->Wait(ticket));
//   queue->Stop();
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/result.h"
#include "runtime/communicator.h"
#include "runtime/group_operator.h"

namespace windtunnel {

// Runs operators. One thread at a time calls it.
class OperatorRunner {
 public:
  virtual ~OperatorRunner() = default;
  // Unsupported for operators that it has no way to run. From the submitting thread.
  virtual Status Check(const GroupOperator&) { return Ok(); }
  // Whether Begin does all that peers wait for, without blocking: then Finish may come as late as the
  // caller's Wait.
  virtual bool CanBegin(const GroupOperator& op) = 0;
  virtual Status Begin(GroupOperator& op) = 0;
  // The whole operator, or what is left of it when it `has_begun`. `waited_for`: the caller does nothing else
  // meanwhile; may become true while the operator is in progress.
  virtual Status Finish(GroupOperator& op, bool has_begun, const std::atomic<bool>& waited_for) = 0;
  // The error of an operator that cannot begin because a prerequisite failed; its peers must not wait for it.
  virtual Status Refuse(GroupOperator& op, const Error& prerequisite) = 0;
  // Makes the call in progress fail soon. From any thread.
  virtual void Abort() = 0;
};

// What an operator waits for, held so that it stays valid when the other communicator is gone.
struct Awaited {
  std::shared_ptr<Tickets> tickets;
  uint64_t ticket = 0;
};

class OperatorQueue : public Tickets {
 public:
  using Clock = Communicator::Clock;

  explicit OperatorQueue(OperatorRunner* runner);
  ~OperatorQueue() override;  // REQUIRES: Stop was called

  // `describe` fills in the operator; its error becomes the operator's. Tickets count up from 1.
  template <typename Describe>
  uint64_t Submit(Describe describe, std::vector<Awaited> after);
  // Aborts what is in progress and fails what is left. Afterwards the runner is not called any more.
  void Stop();

  bool IsDone(uint64_t ticket) override;
  Status Wait(uint64_t ticket) override;
  Status Await(uint64_t ticket, const std::atomic<bool>& given_up) override;
  void Wake() override;
  Communicator::Times TimesOf(uint64_t ticket) const { return times_[ticket % times_.size()]; }
  void KeepTimes(uint64_t tickets) { times_.resize(std::max(tickets, kLeastTimes)); }

 private:
  static constexpr uint64_t kLeastTimes = 4096;  // tickets whose times are kept
  static constexpr uint64_t kOperators = 256;    // the most that wait; beyond them Submit waits for a place

  struct Entry {
    GroupOperator op;
    Status described;
    bool has_begun = false;
    std::vector<Awaited> after;
  };

  Entry& EntryOf(uint64_t ticket) { return entries_[ticket % kOperators]; }
  Entry& Next() { return EntryOf(completed_ + 1); }
  bool Idle() const { return completed_ == submitted_; }
  // Whether the queue's own thread has something to run: anything but a lone operator that has begun and that
  // no other communicator awaits.
  bool NeedsThread() {
    if (driven_ || Idle()) return false;
    return submitted_ - completed_ > 1 || !Next().has_begun || awaited_ > completed_;
  }

  void AwaitPlace(std::unique_lock<std::mutex>& lock);
  void RunOrAwaitNext(std::unique_lock<std::mutex>& lock);
  void Admit(std::unique_lock<std::mutex>& lock);
  void RunNext(std::unique_lock<std::mutex>& lock, bool waited_for);
  Status AwaitPrerequisites(Entry& entry, bool waited_for);
  Status StatusOf(uint64_t ticket) const;
  void Complete(Status status);
  void Work();

  OperatorRunner* runner_;
  std::array<Entry, kOperators> entries_;
  std::vector<Communicator::Times> times_ = std::vector<Communicator::Times>(kLeastTimes);

  std::atomic<bool> stop_ = false;
  std::atomic<bool> waited_for_ = false;  // a caller waits for the operator in progress or a later one

  std::mutex mutex_;  // guards what follows; an entry is the submitter's, then of the thread that runs it
  std::condition_variable work_, done_;
  uint64_t submitted_ = 0, completed_ = 0;
  uint64_t awaited_ = 0;               // the last ticket that another communicator awaits
  bool driven_ = false;                // a thread is running an operator
  std::shared_ptr<Tickets> awaiting_;  // of the communicator whose operator the own thread awaits
  std::optional<Error> failure_;       // the first; every later operator shares it
  uint64_t failed_ticket_ = 0;
  std::thread thread_;
};

template <typename Describe>
uint64_t OperatorQueue::Submit(Describe describe, std::vector<Awaited> after) {
  std::unique_lock lock(mutex_);
  AwaitPlace(lock);
  Entry& entry = EntryOf(submitted_ + 1);
  entry.described = describe(entry.op);
  entry.has_begun = false;
  entry.after = std::move(after);
  const uint64_t ticket = submitted_ + 1;
  Admit(lock);
  return ticket;
}

}  // namespace windtunnel
