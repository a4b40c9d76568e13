#include "runtime/thread_group.h"

#include <chrono>

namespace windtunnel {
namespace {

std::string ViewOf(const GroupOperator& op) {
  return fmt::format("{} '{}'", Describe(op.fingerprint), op.name);
}

bool IsMessage(const GroupOperator& op) {
  return op.operation == GroupOperation::kSend || op.operation == GroupOperation::kReceive;
}

}  // namespace

ThreadGroup::Key ThreadGroup::KeyOf(int rank, const GroupOperator& op) {
  if (op.operation == GroupOperation::kSend) return {rank, op.peer, op.fingerprint.number};
  if (op.operation == GroupOperation::kReceive) return {op.peer, rank, op.fingerprint.number};
  return {-1, -1, op.fingerprint.number};
}

template <typename Condition>
void ThreadGroup::Spin(bool may_spin, Condition condition) const {
  if (!may_spin || options_.spin.count() == 0) return;
  for (const auto until = Clock::now() + options_.spin; !condition() && Clock::now() < until;) {
  }
}

Result<std::shared_ptr<Meeting>> ThreadGroup::Meet(int rank, const GroupOperator& op, bool may_spin) {
  const auto deadline = Clock::now() + options_.timeout;
  std::unique_lock lock(mutex_);
  if (failure_) return tl::unexpected(Explain(rank, op, "").error());
  const Key key = KeyOf(rank, op);
  std::shared_ptr<Meeting>& place = meetings_[key];
  if (place == nullptr) place = std::make_shared<Meeting>(IsMessage(op) ? 2 : options_.size);
  const std::shared_ptr<Meeting> meeting = place;
  const int seat = !IsMessage(op) ? rank : op.operation == GroupOperation::kSend ? 0 : 1;
  meeting->operators[seat] = &op;
  meeting->fingerprints[seat] = op.fingerprint;
  at_[rank] = &op;
  const auto is_complete = [&] { return meeting->arrived.load() == meeting->ranks(); };
  if (++meeting->arrived == meeting->ranks()) {
    meetings_.erase(key);
    changed_.notify_all();
  } else {
    lock.unlock();
    Spin(may_spin, [&] { return is_complete() || has_failed_.load(); });
    lock.lock();
    changed_.wait_until(lock, deadline, [&] {
      return is_complete() || failure_ || is_given_up_[rank] || AwaitsSomeoneGone(*meeting, rank, op);
    });
  }
  std::string reason;
  if (is_complete()) {
    reason = Disagreement(*meeting, op);
    if (reason.empty()) {
      at_[rank] = nullptr;
      return meeting;
    }
  } else if (!failure_ && is_given_up_[rank]) {
    reason = "the communicator was given up";
  } else if (!failure_ && !AwaitsSomeoneGone(*meeting, rank, op)) {
    reason = fmt::format("not all ranks came within {} ms", options_.timeout.count());
  }
  return tl::unexpected(Explain(rank, op, reason).error());
}

// A rank that has gone had finished everything that it came to, so it is missing in whatever is not complete.
bool ThreadGroup::AwaitsSomeoneGone(const Meeting& meeting, int rank, const GroupOperator& op) const {
  if (IsMessage(op)) return is_gone_[op.peer];
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer != rank && is_gone_[peer] && meeting.operators[peer] == nullptr) return true;
  }
  return false;
}

// Compares fingerprints, not the operators themselves: a rank that found the disagreement first may be gone.
std::string ThreadGroup::Disagreement(const Meeting& meeting, const GroupOperator& op) {
  for (int seat = 0; seat < meeting.ranks(); ++seat) {
    const Fingerprint& other = meeting.fingerprints[seat];
    if (other == op.fingerprint) continue;
    return fmt::format("ranks disagree: this rank is at {}, rank {} at {}", Describe(op.fingerprint),
                       IsMessage(op) ? op.peer : seat, Describe(other));
  }
  return "";
}

void ThreadGroup::Pass(Meeting& meeting, int phase, bool may_spin) {
  const int all = (phase + 1) * meeting.ranks();
  const auto is_complete = [&] { return meeting.passed.load() >= all; };
  if (++meeting.passed == all) {
    std::lock_guard lock(mutex_);  // no rank is between its look at `passed` and its sleep
    changed_.notify_all();
    return;
  }
  Spin(may_spin, is_complete);
  if (is_complete()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, is_complete);
}

Status ThreadGroup::Check(int rank, const GroupOperator& op) {
  std::lock_guard lock(mutex_);
  return failure_ ? Explain(rank, op, "") : Ok();
}

Status ThreadGroup::Fail(int rank, const GroupOperator& op, const std::string& reason) {
  std::lock_guard lock(mutex_);
  return Explain(rank, op, reason);
}

// The error of `op`, with who, what and where the peers are. An empty `reason` means another rank's failure,
// or its end. REQUIRES: the lock is held.
Status ThreadGroup::Explain(int rank, const GroupOperator& op, const std::string& reason) {
  std::string why = reason;
  for (int peer = 0; peer < options_.size && why.empty() && !failure_; ++peer) {
    if (peer != rank && is_gone_[peer]) why = fmt::format("rank {} is gone", peer);
  }
  if (why.empty()) why = fmt::format("rank {} failed: {}", failure_->rank, failure_->reason);
  if (!failure_) failure_ = Failure{rank, why};
  has_failed_ = true;
  at_[rank] = nullptr;
  views_[rank] = ViewOf(op);
  std::string text = fmt::format("rank {} of group '{}': {} '{}' ({}) failed: {}", rank, options_.name,
                                 Name(op.operation), op.name, Describe(op.fingerprint), why);
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == rank || is_gone_[peer]) continue;
    const std::string view = at_[peer] != nullptr ? ViewOf(*at_[peer]) : views_[peer];
    text += view.empty() ? fmt::format("; rank {} did not get that far", peer)
                         : fmt::format("; rank {} was at {}", peer, view);
  }
  changed_.notify_all();
  return Failed("{}", text);
}

void ThreadGroup::GiveUp(int rank) {
  std::lock_guard lock(mutex_);
  is_given_up_[rank] = true;
  changed_.notify_all();
}

void ThreadGroup::Leave(int rank) {
  std::lock_guard lock(mutex_);
  is_gone_[rank] = true;
  changed_.notify_all();
}

}  // namespace windtunnel
