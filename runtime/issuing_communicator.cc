#include "runtime/issuing_communicator.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/check.h"

namespace windtunnel {
namespace {

// A waiting host polls this long before it sleeps between polls.
constexpr std::chrono::microseconds kSpin{200};

}  // namespace

// Outlives the communicator, as Tickets may.
class IssuingCommunicator::TicketsOf : public Tickets {
 public:
  explicit TicketsOf(IssuingCommunicator* communicator) : communicator_(communicator) {}

  bool IsDone(uint64_t ticket) override {
    std::lock_guard lock(mutex_);
    return communicator_ == nullptr || communicator_->IsDone(ticket);
  }
  Status Wait(uint64_t ticket) override {
    std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return Failed("the communicator is gone");
    return communicator_->Wait(ticket);
  }
  Status Await(uint64_t ticket, const std::atomic<bool>& given_up) override {
    while (!IsDone(ticket)) {
      if (given_up) return Failed("given up");
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return Wait(ticket);
  }
  void Wake() override {}  // Await polls

  void End() {
    std::lock_guard lock(mutex_);
    communicator_ = nullptr;
  }

 private:
  std::mutex mutex_;
  IssuingCommunicator* communicator_;
};

IssuingCommunicator::IssuingCommunicator(DeviceQueues& queues, std::string name, int rank, int size)
    : queues_(queues),
      name_(std::move(name)),
      rank_(rank),
      size_(size),
      numbers_(size),
      tickets_(std::make_shared<TicketsOf>(this)) {}

std::shared_ptr<Tickets> IssuingCommunicator::tickets() { return tickets_; }
void IssuingCommunicator::EndTickets() { tickets_->End(); }

Status IssuingCommunicator::OpenQueue() {
  WT_ASSIGN_OR_RETURN(queue_, queues_.Open(true));
  return Ok();
}

uint64_t IssuingCommunicator::Submit(const OpKind& kind, std::span<const TensorRef> reads,
                                     std::span<const TensorRef> writes, std::string_view name,
                                     std::span<const Prerequisite> after) {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = ++submitted_;
  if (failure_) return ticket;
  Entry entry;
  Status status = DescribeOperator(kind, reads, writes, name, rank_, size_, entry.op);
  if (status) status = Check(entry.op);
  if (!status) {
    Fail(Error{status.error().kind, fmt::format("rank {}: '{}': {}", rank_, name, status.error().message)});
    return ticket;
  }
  entry.op.fingerprint.number = numbers_.Next(entry.op);
  lock.unlock();
  status = AwaitPrerequisites(entry.op, after);
  lock.lock();
  if (status && !failure_) status = IssueBetweenEvents(entry, lock);
  if (!status) Fail(status.error());
  if (!failure_) entries_.push_back(std::move(entry));
  return ticket;
}

Status IssuingCommunicator::AwaitPrerequisites(const GroupOperator& op, std::span<const Prerequisite> after) {
  for (const Prerequisite& prerequisite : after) {
    if (prerequisite.communicator == this) continue;
    DeviceCommunicator* other = prerequisite.communicator->on_device();
    WT_CHECK(other != nullptr);
    if (auto status = other->LetWait(queue_, prerequisite.ticket); !status)
      return tl::unexpected(Error{status.error().kind, fmt::format("{}: what it waits for failed: {}",
                                                                   Where(op), status.error().message)});
  }
  return Ok();
}

// Issuing may take long (transports that connect, peers that come late), so it is done without the lock:
// others look at the entries meanwhile.
Status IssuingCommunicator::IssueBetweenEvents(Entry& entry, std::unique_lock<std::mutex>& lock) {
  const auto record = [&](DeviceQueues::Event& event) -> Status {
    auto recorded = queues_.Record(queue_, DeviceQueues::Timing::kTimed);
    if (!recorded) return Failed("{} failed: {}", Where(entry.op), recorded.error().message);
    event = *recorded;
    return Ok();
  };
  WT_RETURN_IF_ERROR(record(entry.start));
  lock.unlock();
  const Status issued = Issue(entry.op, entry.start);
  lock.lock();
  WT_RETURN_IF_ERROR(issued);
  return record(entry.end);
}

Status IssuingCommunicator::Wait(uint64_t ticket) {
  const auto begin = Clock::now();
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      Advance();
      if (ticket <= completed_) return Ok();
      if (failure_) return tl::unexpected(*failure_);
    }
    if (Clock::now() - begin > kSpin) std::this_thread::sleep_for(std::chrono::microseconds(5));
  }
}

bool IssuingCommunicator::IsDone(uint64_t ticket) {
  std::lock_guard lock(mutex_);
  Advance();
  return ticket <= completed_ || failure_.has_value();
}

Communicator::Times IssuingCommunicator::TimesOf(uint64_t ticket) const {
  std::lock_guard lock(mutex_);
  return times_[ticket % times_.size()];
}

void IssuingCommunicator::KeepTimes(uint64_t tickets) {
  std::lock_guard lock(mutex_);
  times_.resize(std::max(tickets, kLeastTimes));
}

Status IssuingCommunicator::LetWait(DeviceQueues::Queue queue, uint64_t ticket) {
  std::lock_guard lock(mutex_);
  if (ticket <= completed_) return Ok();
  if (failure_) return tl::unexpected(*failure_);
  WT_CHECK(ticket <= submitted_);
  return queues_.WaitFor(queue, entries_[static_cast<size_t>(ticket - completed_ - 1)].end);
}

std::string IssuingCommunicator::Where(const GroupOperator& op) const {
  return fmt::format("rank {} of group '{}': {} '{}' ({})", rank_, name_, Name(op.operation), op.name,
                     Describe(op.fingerprint));
}

void IssuingCommunicator::Advance() {
  while (!entries_.empty() && !failure_) {
    const Entry& front = entries_.front();
    const auto done = queues_.IsDone(front.end);
    if (!done) return Fail(Error{ErrorKind::kFailed, Where(front.op) + ": " + done.error().message});
    if (!*done) return;
    const auto start = queues_.TimeOf(front.start), end = queues_.TimeOf(front.end);
    ++completed_;
    if (start && end) times_[completed_ % times_.size()] = {*start, *end};
    entries_.pop_front();
  }
}

void IssuingCommunicator::Fail(Error error) {
  if (failure_) return;
  failure_ = std::move(error);
  wake_.notify_all();
}

}  // namespace windtunnel
