// The communicator over MPI: small operators go directly (runtime/direct.h), and large sums around a ring
// (runtime/ring.h), as over Gloo; other large ones are MPI's own (runtime/mpi_collectives.h).
#include <fmt/ranges.h>
#include <mpi/mpi.h>

#include <map>
#include <sstream>

#include "base/format.h"
#include "runtime/communicator.h"
#include "runtime/direct.h"
#include "runtime/mpi.h"
#include "runtime/mpi_bulk_channel.h"
#include "runtime/mpi_channel.h"
#include "runtime/mpi_collectives.h"
#include "runtime/operator_failure.h"
#include "runtime/queued_communicator.h"
#include "runtime/ring.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;
using Clock = Communicator::Clock;

// What a rank has done by the time it leaves its group. Peers would wait in vain for anything beyond; what it
// has done may still be in flight to them.
struct Done {
  uint32_t collectives = 0;
  std::map<int, uint32_t> sent, received;  // messages, by peer

  void Note(const GroupOperator& op) {
    uint32_t& last = op.operation == GroupOperation::kSend      ? sent[op.peer]
                     : op.operation == GroupOperation::kReceive ? received[op.peer]
                                                                : collectives;
    last = op.fingerprint.number;
  }
  // Whether the rank that has done this much has done its part of `op`, the operator that `rank` is at.
  bool Covers(const GroupOperator& op, int rank) const {
    const auto at_least = [&](const std::map<int, uint32_t>& messages) {
      const auto found = messages.find(rank);
      return found != messages.end() && found->second >= op.fingerprint.number;
    };
    if (op.operation == GroupOperation::kSend) return at_least(received);
    if (op.operation == GroupOperation::kReceive) return at_least(sent);
    return collectives >= op.fingerprint.number;
  }

  std::string Text() const {
    std::string text = fmt::format("{} {} {}", collectives, sent.size(), received.size());
    for (const auto* messages : {&sent, &received})
      for (const auto& [peer, number] : *messages) text += fmt::format(" {} {}", peer, number);
    return text;
  }
  static Done Parse(const std::string& text) {
    std::istringstream in(text);
    Done done;
    size_t sends = 0, receives = 0;
    in >> done.collectives >> sends >> receives;
    int peer = 0;
    for (size_t i = 0; i < sends && in >> peer; ++i) in >> done.sent[peer];
    for (size_t i = 0; i < receives && in >> peer; ++i) in >> done.received[peer];
    return done;
  }
};

// For all ranks to hear what rank 0 says at the end of its own time.
constexpr milliseconds kVerdictGrace{5'000};

constexpr int64_t kRingPartBytes = int64_t{32} << 10;
constexpr int kRingRanks = 1024;  // more would need more tags (MpiBulkChannel::kTags)

// Sums go around the ring from 32 KiB a step on, because MPI's nonblocking ones move the whole message up and
// down a tree of ranks, with few of them at work (docs/decisions/0022). The answer is the same on every rank,
// and always the same for the same operator.
bool GoesAroundRing(const GroupOperator& op, int size) {
  const bool sums =
      op.operation == GroupOperation::kAllReduce || op.operation == GroupOperation::kReduceScatter;
  return sums && op.scratch_elements > 0 && size <= kRingRanks && op.bytes() / size >= kRingPartBytes;
}

class MpiRunner : public OperatorRunner {
 public:
  MpiRunner(Store& store, const MpiOptions& options)
      : store_(store), options_(options), failures_(store, options.name, options.rank, options.size) {}

  ~MpiRunner() override {
    if (channel_ == nullptr) return;
    (void)store_.Set(LeftKey(options_.rank), done_.Text());
    (void)store_.Set(LeftKey(-1), "");
  }

  Status Connect() {
    if (options_.size == 1) return Ok();
    WT_RETURN_IF_ERROR(StartMpi(options_.timeout));
    WT_ASSIGN_OR_RETURN(const std::vector<int> world_ranks, Meet());
    std::unique_lock lock(MpiMutex());
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, options_.size, world_ranks.data(), &group);
    MPI_Comm communicator = MPI_COMM_NULL;
    const int error = MPI_Comm_create_group(MPI_COMM_WORLD, group, /*tag=*/0, &communicator);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    lock.unlock();
    if (error != MPI_SUCCESS)
      return Failed("rank {} of group '{}': {}", options_.rank, options_.name, MpiMessage(error));
    MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    channel_ =
        std::make_unique<MpiChannel>(communicator, options_.shares_core, [this] { return AskForPeers(); });
    collectives_ = std::make_unique<MpiCollectives>(*channel_);
    bulk_ = std::make_unique<MpiBulkChannel>(*channel_);
    return Ok();
  }

  Status Check(const GroupOperator& op) override { return MpiCollectives::Check(op); }

  bool CanBegin(const GroupOperator& op) override {
    if (options_.size == 1 || !GoesDirect(op, options_.size)) return false;
    return BeginSendsAll(op, options_.size) && op.bytes() <= MpiChannel::kEagerBytes && channel_->HasRoom();
  }

  Status Begin(GroupOperator& op) override {
    const auto start = Clock::now();
    SetLimits(op, start, nullptr);
    return Explain(op, start, BeginDirect(op, *channel_));
  }

  Status Finish(GroupOperator& op, bool has_begun, const std::atomic<bool>& waited_for) override {
    if (options_.size == 1) {
      RunAlone(op);
      return Ok();
    }
    const auto start = Clock::now();
    SetLimits(op, start, &waited_for);
    Status status;
    if (GoesDirect(op, options_.size)) {
      if (!has_begun) status = BeginDirect(op, *channel_);
      if (status) status = FinishDirect(op, *channel_);
    } else {
      status = collectives_->Agree(op);
      if (status) status = GoesAroundRing(op, options_.size) ? RunBulk(op, *bulk_) : collectives_->Run(op);
    }
    if (status) done_.Note(op);
    return Explain(op, start, std::move(status));
  }

  Status Refuse(GroupOperator& op, const Error& prerequisite) override {
    return Explain(op, Clock::now(), Failed("what it waits for failed: {}", prerequisite.message));
  }

  void Abort() override {
    if (channel_ != nullptr) channel_->Abort();
  }

 private:
  // Every rank of the group tells which process of MPI it is. Returns these by rank. Rank 0 collects them and
  // all read one key: each asking for each would take n² requests of the store.
  Result<std::vector<int>> Meet() {
    int world_rank = 0, world_size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (world_size < options_.size)
      return Failed(
          "rank {} of group '{}': MPI knows of {}, the group has {} ranks: start them with "
          "`windtunnel run`, mpirun or srun --mpi=pmix",
          options_.rank, options_.name, Counted(world_size, "process"), options_.size);
    const std::string prefix = "mpi/" + options_.name + "/";
    WT_RETURN_IF_ERROR(store_.Set(prefix + std::to_string(options_.rank), std::to_string(world_rank)));
    if (options_.rank == 0) WT_RETURN_IF_ERROR(store_.Set(prefix + "all", Collected(prefix)));
    const auto all = store_.Get(prefix + "all", options_.timeout + kVerdictGrace);
    if (!all || all->starts_with("-"))
      return Failed("rank {} of group '{}' ({} ranks) could not connect to its peers: {}", options_.rank,
                    options_.name, options_.size, all ? all->substr(1) : all.error().message);
    std::vector<int> world_ranks(static_cast<size_t>(options_.size));
    std::istringstream in(*all);
    for (int& rank : world_ranks) {
      if (!(in >> rank) || rank < 0 || rank >= world_size)
        return Failed("rank {} of group '{}': its peers are '{}' of MPI, expected {} numbers below {}",
                      options_.rank, options_.name, *all, options_.size, world_size);
    }
    return world_ranks;
  }

  // What the ranks have told, in their order; "-" and what is wrong where one tells nothing.
  std::string Collected(const std::string& prefix) {
    const auto told = GetAll(store_, prefix, options_.size, options_.timeout);
    return told ? fmt::format("{}", fmt::join(*told, " ")) : "-" + told.error().message;
  }

  void SetLimits(const GroupOperator& op, Clock::time_point start, const std::atomic<bool>* waited_for) {
    current_ = &op;
    channel_->SetLimits(start + options_.timeout, waited_for);
  }

  // MPI does not say that a peer is gone; the peer itself does, in the store.
  Status AskForPeers() {
    if (failures_.AnyFailed()) return Failed("a peer gave up");
    const Result<bool> any_left = store_.Has(LeftKey(-1));
    if (!any_left || !*any_left) return Ok();
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer == options_.rank || !TakesPart(peer)) continue;
      const auto left = store_.Get(LeftKey(peer), milliseconds(0));
      if (left && !Done::Parse(*left).Covers(*current_, options_.rank))
        return Failed("rank {} has left the group", peer);
    }
    return Ok();
  }
  // In a message the other end alone takes part, in a collective all ranks do.
  bool TakesPart(int peer) const {
    const bool is_message =
        current_->operation == GroupOperation::kSend || current_->operation == GroupOperation::kReceive;
    return !is_message || peer == current_->peer;
  }
  std::string LeftKey(int rank) const {
    return "left/" + options_.name + "/" + (rank < 0 ? "any" : std::to_string(rank));
  }

  // After an error no call of MPI may follow: it could write to the operands that the caller takes back now.
  Status Explain(const GroupOperator& op, Clock::time_point start, Status status) {
    if (status) return status;
    GiveUpMpi();
    return tl::unexpected(failures_.Explain(op, start, options_.timeout, status.error()));
  }

  Store& store_;
  MpiOptions options_;
  OperatorFailures failures_;
  std::unique_ptr<MpiChannel> channel_;
  std::unique_ptr<MpiCollectives> collectives_;
  std::unique_ptr<MpiBulkChannel> bulk_;
  const GroupOperator* current_ = nullptr;  // for AskForPeers
  Done done_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> MakeMpiCommunicator(Store& store, const MpiOptions& options) {
  auto runner = std::make_unique<MpiRunner>(store, options);
  WT_RETURN_IF_ERROR(runner->Connect());
  return MakeQueuedCommunicator(std::move(runner), options.rank, options.size);
}

}  // namespace windtunnel
