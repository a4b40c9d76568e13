#include "runtime/operator_queue.h"

#include "base/check.h"

namespace windtunnel {

OperatorQueue::OperatorQueue(OperatorRunner* runner) : runner_(runner), thread_([this] { Work(); }) {}

OperatorQueue::~OperatorQueue() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (!Idle()) runner_->Abort();
  }
  work_.notify_one();
  thread_.join();
}

void OperatorQueue::AwaitPlace(std::unique_lock<std::mutex>& lock) {
  while (submitted_ - completed_ == kOperators) {
    if (driven_) done_.wait(lock);
    else RunNext(lock, /*waited_for=*/true);
  }
}

// Takes the entry after the last one in: begins it here, or leaves it to the thread.
void OperatorQueue::Admit(std::unique_lock<std::mutex>& lock) {
  const uint64_t ticket = ++submitted_;
  Entry& entry = EntryOf(ticket);
  times_[ticket % kTimes].start = Clock::now();
  const bool first = completed_ + 1 == ticket && !driven_;
  if (first && !failure_ && entry.described && runner_->CanBegin(entry.op)) {
    driven_ = true;
    lock.unlock();
    Status begun = runner_->Begin(entry.op);
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

Status OperatorQueue::Wait(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  WT_CHECK_LE(ticket, submitted_);
  while (completed_ < ticket) {
    if (driven_) done_.wait(lock);
    else RunNext(lock, /*waited_for=*/true);
  }
  if (NeedsThread()) work_.notify_one();
  if (failure_ && ticket >= failed_ticket_) return tl::unexpected(*failure_);
  return Ok();
}

// Runs the operator after the last completed one. The lock is released meanwhile.
void OperatorQueue::RunNext(std::unique_lock<std::mutex>& lock, bool waited_for) {
  Entry& entry = Next();
  if (failure_) return Complete(tl::unexpected(*failure_));
  if (!entry.described) return Complete(entry.described);
  driven_ = true;
  Communicator::Times& times = times_[(completed_ + 1) % kTimes];
  if (!entry.has_begun) times.start = Clock::now();
  lock.unlock();
  Status status = runner_->Finish(entry.op, entry.has_begun, waited_for);
  lock.lock();
  driven_ = false;
  Complete(std::move(status));
}

void OperatorQueue::Complete(Status status) {
  ++completed_;
  times_[completed_ % kTimes].end = Clock::now();
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
