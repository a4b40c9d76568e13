#include "bench/rank_group.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>

#include "runtime/communicator.h"
#include "runtime/cores.h"
#include "runtime/group_operator.h"
#include "runtime/mpi.h"
#include "runtime/store.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kConnectTime{30'000};
constexpr char kToken[] = "bench";

// A request of rank 0 to all ranks.
enum class Command : int32_t { kStop, kTime, kCheck };
struct Request {
  Command command = Command::kStop;
  int32_t kind = 0, warmup = 0, iterations = 0;
  int64_t elements = 0;
};
constexpr int64_t kRequestWords = sizeof(Request) / sizeof(int32_t);

// Pins the process to the rank-th of the cores that it may use.
void PinTo(int rank) {
  if (cpu_set_t core; CoreOfRank(rank, core)) sched_setaffinity(0, sizeof core, &core);
}

// Element i of rank r's operand: a small whole number, so that sums are exact.
float Value(int rank, int64_t i) { return static_cast<float>((rank + 1) * (i % 13 + 1)); }

}  // namespace

// One rank's side: its communicator and operands.
struct RankGroup::Rank {
  std::unique_ptr<Store> store;
  std::unique_ptr<Communicator> communicator;
  std::vector<float> in, out, scratch;
  Backend backend = Backend::kGloo;
  int ranks = 1;

  Status Connect(std::unique_ptr<Store> through, int rank) {
    store = std::move(through);
    const bool shares_core = ranks > static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    if (backend == Backend::kMpi) {
      WT_ASSIGN_OR_RETURN(communicator,
                          MakeMpiCommunicator(*store, {"bench", rank, ranks, kConnectTime, shares_core}));
      return Ok();
    }
    GlooOptions options{"bench", rank, ranks, "127.0.0.1", kConnectTime};
    if (shares_core) options.spin = std::chrono::microseconds(0);
    WT_ASSIGN_OR_RETURN(communicator, MakeGlooCommunicator(*store, options));
    return Ok();
  }

  void End() {
    const int rank = communicator->rank();
    communicator.reset();
    if (backend == Backend::kMpi) EndMpi(*store, rank, ranks, kConnectTime);
  }

  int rank() const { return communicator->rank(); }
  int size() const { return communicator->size(); }

  Status Run(const Collective& op, void* read, int64_t reads, void* written, int64_t writes) {
    const TensorRef inputs[] = {{read, reads}};
    const TensorRef outputs[] = {{written, writes}, {scratch.data(), static_cast<int64_t>(scratch.size())}};
    return communicator->Wait(communicator->Submit(op, inputs, outputs, "bench"));
  }

  // Allocates and fills the operands. All-reduce and broadcast work in place; all-gather reads one part, and
  // reduce-scatter writes one.
  void Prepare(const Collective& op) {
    in.resize(static_cast<size_t>(op.elements));
    out.resize(static_cast<size_t>(op.elements));
    scratch.resize(static_cast<size_t>(CollectiveScratchElements(op, size())));
    for (int64_t i = 0; i < op.elements; ++i) in[i] = out[i] = Value(rank(), i);
  }
  Status RunOnce(const Collective& op) { return Run(op, in.data(), op.elements, out.data(), op.elements); }

  float Expected(const Collective& op, int64_t i) const {
    const int ranks = size() * (size() + 1) / 2;  // the sum of the weights rank + 1
    const int64_t own = PartOf(op.elements, size(), rank()).begin;
    switch (op.kind) {
      case CollectiveKind::kAllReduce:
        return Value(0, i) * static_cast<float>(ranks);
      case CollectiveKind::kReduceScatter:
        return Value(0, own + i) * static_cast<float>(ranks);
      case CollectiveKind::kBroadcast:
        return Value(op.root, i);
      case CollectiveKind::kAllGather:
        for (int rank = size() - 1; rank >= 0; --rank) {
          const Part part = PartOf(op.elements, size(), rank);
          if (i >= part.begin) return Value(rank, i - part.begin);
        }
        return 0;
      default:
        return 0;
    }
  }

  Result<int32_t> Check(const Collective& op) {
    Prepare(op);
    WT_RETURN_IF_ERROR(RunOnce(op));
    const bool scatters = op.kind == CollectiveKind::kReduceScatter;
    const int64_t results = scatters ? PartOf(op.elements, size(), rank()).elements : op.elements;
    int32_t wrong = 0;
    for (int64_t i = 0; i < results; ++i) wrong += out[i] != Expected(op, i) ? 1 : 0;
    const Collective sum = {CollectiveKind::kAllReduce, DType::kInt32, 1, 0};
    WT_RETURN_IF_ERROR(Run(sum, nullptr, 0, &wrong, 1));
    return wrong;
  }

  // The slowest rank's seconds, as the bits of a float: among positive floats, larger ones have larger bits.
  Result<int32_t> Measure(const Collective& op, int warmup, int iterations) {
    Prepare(op);
    for (int i = 0; i < warmup; ++i) WT_RETURN_IF_ERROR(RunOnce(op));
    WT_RETURN_IF_ERROR(Run({CollectiveKind::kBarrier, DType::kFloat32, 0, 0}, nullptr, 0, nullptr, 0));
    const auto start = Communicator::Clock::now();
    for (int i = 0; i < iterations; ++i) WT_RETURN_IF_ERROR(RunOnce(op));
    const std::chrono::duration<float> took = Communicator::Clock::now() - start;
    std::vector<int32_t> all(static_cast<size_t>(size()));
    auto mine = std::bit_cast<int32_t>(took.count() / static_cast<float>(iterations));
    const Collective gather = {CollectiveKind::kAllGather, DType::kInt32, size(), 0};
    WT_RETURN_IF_ERROR(Run(gather, &mine, 1, all.data(), size()));
    return *std::max_element(all.begin(), all.end());
  }

  // Broadcasts rank 0's request; then every rank does it.
  Result<int32_t> Obey(Request& request) {
    const Collective tell = {CollectiveKind::kBroadcast, DType::kInt32, kRequestWords, 0};
    WT_RETURN_IF_ERROR(Run(tell, nullptr, 0, &request, kRequestWords));
    const Collective op = {static_cast<CollectiveKind>(request.kind), DType::kFloat32, request.elements, 0};
    switch (request.command) {
      case Command::kTime:
        return Measure(op, request.warmup, request.iterations);
      case Command::kCheck:
        return Check(op);
      case Command::kStop:
        break;
    }
    return 0;
  }
};

namespace {

// The life of a child: it learns the store's port, connects, obeys requests, and ends.
template <typename Rank>
[[noreturn]] void Serve(Rank& self, int rank, int port_pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  PinTo(rank);
  int port = 0;
  if (read(port_pipe, &port, sizeof port) != sizeof port) _exit(1);
  auto store = ConnectStore("127.0.0.1", port, kToken, kConnectTime);
  Status connected = store ? self.Connect(std::move(*store), rank) : Status(tl::unexpected(store.error()));
  Request request;
  do {
    Result<int32_t> done =
        connected ? self.Obey(request) : Result<int32_t>(tl::unexpected(connected.error()));
    if (!done) {
      fprintf(stderr, "rank %d: %s\n", rank, done.error().message.c_str());
      _exit(1);
    }
  } while (request.command != Command::kStop);
  self.End();
  _exit(0);
}

void Enter(const MpiHost& host, int rank) {
  for (const auto& [name, value] : host.EnvironmentOf(rank)) setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace

RankGroup::RankGroup() : rank_(std::make_unique<Rank>()) {}

RankGroup::~RankGroup() {
  Request stop;
  const bool connected = rank_->communicator != nullptr;
  if (connected && rank_->Obey(stop)) rank_->End();
  for (pid_t child : children_) {
    if (!connected) kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

int RankGroup::size() const { return rank_->size(); }

Result<std::unique_ptr<RankGroup>> RankGroup::Fork(int ranks, Backend backend) {
  std::unique_ptr<RankGroup> group(new RankGroup());
  group->rank_->backend = backend;
  group->rank_->ranks = ranks;
  if (backend == Backend::kMpi) {
    MpiJob job;
    job.world_size = job.local_ranks = ranks;
    WT_ASSIGN_OR_RETURN(group->mpi_, MpiHost::Start(job));
  }
  int ends[2];
  if (pipe(ends) != 0) return Failed("cannot make a pipe");
  const FileDescriptor read_end(ends[0]);
  group->port_pipe_ = FileDescriptor(ends[1]);
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) return Failed("cannot fork rank {}", rank);
    if (child == 0) {
      if (group->mpi_ != nullptr) Enter(*group->mpi_, rank);
      Serve(*group->rank_, rank, ends[0]);
    }
    group->children_.push_back(child);
  }
  return group;
}

Status RankGroup::Connect() {
  PinTo(0);
  if (mpi_ != nullptr) Enter(*mpi_, 0);
  WT_ASSIGN_OR_RETURN(auto store, ServeStore("127.0.0.1", 0, kToken));
  const int port = store->port();
  for (int rank = 1; rank < rank_->ranks; ++rank)
    if (write(port_pipe_.get(), &port, sizeof port) != sizeof port)
      return Failed("cannot tell rank {} the port", rank);
  return rank_->Connect(std::move(store), 0);
}

std::string VersionOf(Backend backend) {
  return backend == Backend::kMpi ? MpiVersion() : "gloo " + GlooVersion();
}

Result<double> RankGroup::Time(const CollectiveCase& what, int warmup, int iterations) {
  Request request{Command::kTime, static_cast<int32_t>(what.kind), warmup, iterations, what.elements};
  WT_ASSIGN_OR_RETURN(int32_t seconds, rank_->Obey(request));
  return std::bit_cast<float>(seconds);
}

Result<int64_t> RankGroup::CountWrong(const CollectiveCase& what) {
  Request request{Command::kCheck, static_cast<int32_t>(what.kind), 0, 0, what.elements};
  WT_ASSIGN_OR_RETURN(int32_t wrong, rank_->Obey(request));
  return wrong;
}

}  // namespace windtunnel
