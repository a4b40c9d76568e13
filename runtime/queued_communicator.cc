#include "runtime/queued_communicator.h"

#include "runtime/group_operator.h"

namespace windtunnel {
namespace {

class QueuedCommunicator : public Communicator {
 public:
  QueuedCommunicator(std::unique_ptr<OperatorRunner> runner, int rank, int size)
      : rank_(rank),
        size_(size),
        numbers_(size),
        runner_(std::move(runner)),
        queue_(std::make_shared<OperatorQueue>(runner_.get())) {}
  ~QueuedCommunicator() override { queue_->Stop(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  uint64_t Submit(const OpKind& kind, std::span<const TensorRef> reads, std::span<const TensorRef> writes,
                  std::string_view name, std::span<const Prerequisite> after) override {
    const auto describe = [&](GroupOperator& op) -> Status {
      Status described = DescribeOperator(kind, reads, writes, name, rank_, size_, op);
      if (described) described = runner_->Check(op);
      if (!described) {
        ErrorKind error = described.error().kind;
        return tl::unexpected(
            Error{error, fmt::format("rank {}: '{}': {}", rank_, name, described.error().message)});
      }
      op.fingerprint.number = numbers_.Next(op);
      return Ok();
    };
    return queue_->Submit(describe, ToAwait(after));
  }

  Status Wait(uint64_t ticket) override { return queue_->Wait(ticket); }
  Times TimesOf(uint64_t ticket) const override { return queue_->TimesOf(ticket); }
  void KeepTimes(uint64_t tickets) override { queue_->KeepTimes(tickets); }
  std::shared_ptr<Tickets> tickets() override { return queue_; }

 private:
  // The prerequisites that are still to be waited for, or that failed. Those of this communicator are left
  // out, since they run first anyway.
  std::vector<Awaited> ToAwait(std::span<const Prerequisite> after) const {
    std::vector<Awaited> awaited;
    for (const Prerequisite& prerequisite : after) {
      if (prerequisite.communicator == this) continue;
      std::shared_ptr<Tickets> tickets = prerequisite.communicator->tickets();
      const bool succeeded = tickets->IsDone(prerequisite.ticket) && tickets->Wait(prerequisite.ticket);
      if (!succeeded) awaited.push_back({std::move(tickets), prerequisite.ticket});
    }
    return awaited;
  }

  int rank_, size_;
  OperatorNumbers numbers_;
  std::unique_ptr<OperatorRunner> runner_;
  std::shared_ptr<OperatorQueue> queue_;
};

}  // namespace

std::unique_ptr<Communicator> MakeQueuedCommunicator(std::unique_ptr<OperatorRunner> runner, int rank,
                                                     int size) {
  return std::make_unique<QueuedCommunicator>(std::move(runner), rank, size);
}

}  // namespace windtunnel
