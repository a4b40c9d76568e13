#include "runtime/operator_queue.h"

#include <algorithm>

#include "base/check.h"
#include "base/errors_of.h"

namespace windtunnel {

OperatorQueue::OperatorQueue(OperatorRunner* runner) : runner_(runner), thread_([this] { Work(); }) {}

OperatorQueue::~OperatorQueue() { WT_CHECK(!thread_.joinable()); }

void OperatorQueue::Stop() {
  std::shared_ptr<Tickets> awaiting;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (!Idle()) runner_->Abort();
    awaiting = awaiting_;
  }
  if (awaiting != nullptr) awaiting->Wake();
  work_.notify_one();
  thread_.join();
  std::unique_lock lock(mutex_);
  // A thread of another communicator, in Wait, may be running an operator.
  done_.wait(lock, [this] { return !driven_; });
  while (!Idle()) Complete(Failed("the communicator was given up"));
}

void OperatorQueue::AwaitPlace(std::unique_lock<std::mutex>& lock) {
  while (submitted_ - completed_ == kOperators) RunOrAwaitNext(lock);
}

void OperatorQueue::RunOrAwaitNext(std::unique_lock<std::mutex>& lock) {
  if (!driven_) return RunNext(lock, /*waited_for=*/true);
  waited_for_ = true;
  done_.wait(lock);
}

// Admits the entry after the last one: begins it here, or leaves it to the thread.
void OperatorQueue::Admit(std::unique_lock<std::mutex>& lock) {
  const uint64_t ticket = ++submitted_;
  Entry& entry = EntryOf(ticket);
  times_[ticket % times_.size()].start = Clock::now();
  const bool first = completed_ + 1 == ticket && !driven_;
  if (first && !failure_ && entry.described && entry.after.empty() && runner_->CanBegin(entry.op)) {
    driven_ = true;
    lock.unlock();
    Status begun = ErrorsOf([&] { return runner_->Begin(entry.op); });
    lock.lock();
    driven_ = false;
    entry.has_begun = true;
    if (!begun) Complete(std::move(begun));
    done_.notify_all();  // whoever came to wait meanwhile may finish it
  }
  const bool needs_thread = NeedsThread();
  lock.unlock();
  if (needs_thread) work_.notify_one();
}

bool OperatorQueue::IsDone(uint64_t ticket) {
  std::lock_guard lock(mutex_);
  return completed_ >= ticket;
}

Status OperatorQueue::Wait(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  WT_CHECK_LE(ticket, submitted_);
  while (completed_ < ticket) RunOrAwaitNext(lock);
  if (NeedsThread()) work_.notify_one();
  return StatusOf(ticket);
}

Status OperatorQueue::Await(uint64_t ticket, const std::atomic<bool>& given_up) {
  std::unique_lock lock(mutex_);
  WT_CHECK_LE(ticket, submitted_);
  awaited_ = std::max(awaited_, ticket);
  if (NeedsThread()) work_.notify_one();
  done_.wait(lock, [&] { return completed_ >= ticket || given_up; });
  return completed_ >= ticket ? StatusOf(ticket) : Failed("the communicator was given up");
}

// With the lock held, so that no waiting thread is between its look at `given_up` and its sleep.
void OperatorQueue::Wake() {
  std::lock_guard lock(mutex_);
  done_.notify_all();
}

// REQUIRES: `ticket` is done, and the lock is held.
Status OperatorQueue::StatusOf(uint64_t ticket) const {
  if (failure_ && ticket >= failed_ticket_) return tl::unexpected(*failure_);
  return Ok();
}

// Runs the operator after the last completed one. The lock is released meanwhile.
void OperatorQueue::RunNext(std::unique_lock<std::mutex>& lock, bool waited_for) {
  Entry& entry = Next();
  if (failure_) return Complete(tl::unexpected(*failure_));
  if (!entry.described) return Complete(entry.described);
  driven_ = true;
  waited_for_ = waited_for;
  Communicator::Times& times = times_[(completed_ + 1) % times_.size()];
  lock.unlock();
  Status status = AwaitPrerequisites(entry, waited_for);
  if (!entry.has_begun) times.start = Clock::now();
  if (status) status = ErrorsOf([&] { return runner_->Finish(entry.op, entry.has_begun, waited_for_); });
  lock.lock();
  driven_ = false;
  Complete(std::move(status));
}

// A caller that waits runs the other communicators' operators itself. The queue's own thread leaves them to
// theirs, so that Stop can call it back.
Status OperatorQueue::AwaitPrerequisites(Entry& entry, bool waited_for) {
  for (const Awaited& awaited : entry.after) {
    if (!waited_for) {
      std::lock_guard lock(mutex_);
      awaiting_ = awaited.tickets;
    }
    Status done =
        waited_for ? awaited.tickets->Wait(awaited.ticket) : awaited.tickets->Await(awaited.ticket, stop_);
    if (!waited_for) {
      std::lock_guard lock(mutex_);
      awaiting_ = nullptr;
    }
    if (!done) return runner_->Refuse(entry.op, done.error());
  }
  return Ok();
}

void OperatorQueue::Complete(Status status) {
  Next().after.clear();  // two queues that wait for each other's operators must not keep each other alive
  ++completed_;
  times_[completed_ % times_.size()].end = Clock::now();
  if (!status && !failure_) {
    failure_ = std::move(status).error();
    failed_ticket_ = completed_;
  }
  done_.notify_all();
}

void OperatorQueue::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stop_ || NeedsThread(); });
    if (stop_) return;
    while (!stop_ && NeedsThread()) RunNext(lock, /*waited_for=*/false);
  }
}

}  // namespace windtunnel
