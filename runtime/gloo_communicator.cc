// The communicator over Gloo: small operators go directly (runtime/direct.h), large ones around a ring
// (runtime/ring.h).
#include <algorithm>
#include <thread>

#include "runtime/communicator.h"
#include "runtime/direct.h"
#include "runtime/direct_channel.h"
#include "runtime/gloo_bulk_channel.h"
#include "runtime/gloo_connect.h"
#include "runtime/gloo_ticker.h"
#include "runtime/group_operator.h"
#include "runtime/operator_failure.h"
#include "runtime/queued_communicator.h"
#include "runtime/ring.h"

namespace windtunnel {
namespace {

using Clock = Communicator::Clock;

class GlooRunner : public OperatorRunner {
 public:
  GlooRunner(Store& store, const GlooOptions& options)
      : store_(store), options_(options), failures_(store, options.name, options.rank, options.size) {}

  ~GlooRunner() override {
    if (ticker_ != nullptr) ticker_->Start();
  }

  Status Connect() {
    if (options_.size == 1) return Ok();
    WT_ASSIGN_OR_RETURN(GlooConnections connections, ConnectGloo(store_, options_));
    ticker_ = std::move(connections.ticker);
    WT_ASSIGN_OR_RETURN(direct_, DirectChannel::Make(std::move(connections.direct)));
    WT_ASSIGN_OR_RETURN(bulk_,
                        GlooBulkChannel::Make(std::move(connections.device), std::move(connections.bulk)));
    bulk_->SetIsGone([this](int peer) { return direct_->IsGone(peer); });
    ticker_->Stop();
    return Ok();
  }

  // Nothing between processes needs these operators.
  Status Check(const GroupOperator& op) override {
    const bool has_none = op.operation == GroupOperation::kReduce ||
                          op.operation == GroupOperation::kGather || op.operation == GroupOperation::kScatter;
    return has_none ? Unsupported("{} is not supported over gloo", Name(op.operation)) : Ok();
  }

  bool CanBegin(const GroupOperator& op) override {
    return options_.size > 1 && GoesDirect(op, options_.size) && BeginSendsAll(op, options_.size);
  }

  Status Begin(GroupOperator& op) override {
    const auto start = Clock::now();
    direct_->SetLimits(start + options_.timeout, std::chrono::microseconds(0));
    return Explain(op, start, BeginDirect(op, *direct_));
  }

  Status Finish(GroupOperator& op, bool has_begun, const std::atomic<bool>& waited_for) override {
    const auto start = Clock::now();
    if (options_.size == 1) {
      RunAlone(op);
      return Ok();
    }
    if (!GoesDirect(op, options_.size)) {
      bulk_->SetDeadline(start + options_.timeout);
      return Explain(op, start, RunBulk(op, *bulk_));
    }
    direct_->SetLimits(start + options_.timeout, waited_for ? options_.spin : std::chrono::microseconds(0));
    Status status;
    if (!has_begun) status = BeginDirect(op, *direct_);
    if (status) status = FinishDirect(op, *direct_);
    return Explain(op, start, std::move(status));
  }

  Status Refuse(GroupOperator& op, const Error& prerequisite) override {
    return Explain(op, Clock::now(), Failed("what it waits for failed: {}", prerequisite.message));
  }

  void Abort() override {
    if (direct_ != nullptr) direct_->Abort();
    if (bulk_ != nullptr) bulk_->Abort();
  }

 private:
  // Adds to the error who, what and where the peers are, and cuts all connections, so
  // that the peers fail as well.
  Status Explain(const GroupOperator& op, Clock::time_point start, Status status) {
    if (status) return status;
    Error explained = failures_.Explain(op, start, options_.timeout, status.error());
    if (direct_ != nullptr) direct_->Close();
    if (bulk_ != nullptr) bulk_->Close();
    return tl::unexpected(std::move(explained));
  }

  Store& store_;
  GlooOptions options_;
  OperatorFailures failures_;
  std::unique_ptr<GlooTicker> ticker_;  // declared before what holds the device
  std::unique_ptr<DirectChannel> direct_;
  std::unique_ptr<GlooBulkChannel> bulk_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> MakeGlooCommunicator(Store& store, const GlooOptions& options) {
  auto runner = std::make_unique<GlooRunner>(store, options);
  WT_RETURN_IF_ERROR(runner->Connect());
  return MakeQueuedCommunicator(std::move(runner), options.rank, options.size);
}

}  // namespace windtunnel
