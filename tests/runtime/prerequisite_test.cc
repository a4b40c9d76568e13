// Operators that wait for those of another communicator: the pattern of hybrid sharding, where one group sums
// what another has scattered.
#include <gtest/gtest.h>

#include <deque>

#include "tests/runtime/group_of_threads.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;
using Clock = Communicator::Clock;

// A rank of a 2 x 2 mesh: ranks 0, 1 and ranks 2, 3 share shards; ranks 0, 2 and ranks 1, 3 hold the same
// shard.
struct MeshRank {
  int rank = 0;
  std::unique_ptr<Communicator> shards, replicas;
};

void WithMeshOfThreads(const std::function<void(MeshRank&)>& work) {
  std::vector<std::shared_ptr<ThreadGroup>> shards, replicas;
  for (int i = 0; i < 2; ++i) {
    shards.push_back(MakeThreadGroup({.name = fmt::format("shard {}", i), .size = 2}));
    replicas.push_back(MakeThreadGroup({.name = fmt::format("replicate {}", i), .size = 2}));
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      MeshRank mesh{rank, MakeThreadCommunicator(shards[rank / 2], rank % 2),
                    MakeThreadCommunicator(replicas[rank % 2], rank / 2)};
      work(mesh);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void WithMesh(Transport transport, const std::function<void(MeshRank&)>& work,
              milliseconds timeout = std::chrono::seconds(60)) {
  if (transport == Transport::kThreads) return WithMeshOfThreads(work);
  const auto with_ranks = transport == Transport::kMpi ? WithProcesses : WithStores;
  with_ranks(4, [&](int rank, Store& store) {
    const auto make = [&](std::string name, int position) {
      if (transport == Transport::kMpi)
        return MakeMpiCommunicator(store, {.name = std::move(name),
                                           .rank = position,
                                           .size = 2,
                                           .timeout = timeout,
                                           .shares_core = UsableCores() < 4});
      return MakeGlooCommunicator(store,
                                  {.name = std::move(name), .rank = position, .size = 2, .timeout = timeout});
    };
    auto shards = make("shard " + std::to_string(rank / 2), rank % 2);
    ASSERT_TRUE(shards) << shards.error().message;
    auto replicas = make("replicate " + std::to_string(rank % 2), rank / 2);
    ASSERT_TRUE(replicas) << replicas.error().message;
    MeshRank mesh{rank, *std::move(shards), *std::move(replicas)};
    work(mesh);
  });
}

// One unit's gradients: scattered in place among the shards, then summed over the replicas.
struct Unit {
  std::vector<float> gradients, scratch;
  TensorRef shard;
  Collective scatter, reduce;

  Unit(const Unit&) = delete;  // `shard` points into it
  Unit(int64_t elements, const MeshRank& mesh) : gradients(static_cast<size_t>(elements)), scratch(1 << 20) {
    for (int64_t i = 0; i < elements; ++i) gradients[i] = Gradient(mesh.rank, i);
    shard = {gradients.data() + mesh.shards->rank() * (elements / 2), elements / 2};
    scatter = {CollectiveKind::kReduceScatter, DType::kFloat32, elements, 0};
    reduce = AllReduceOf(elements / 2);
  }
  static float Gradient(int rank, int64_t i) { return static_cast<float>((rank + 1) * (i % 97)); }

  uint64_t Scatter(MeshRank& mesh) {
    const TensorRef reads[] = {Ref(gradients)}, writes[] = {shard, Ref(scratch)};
    return mesh.shards->Submit(scatter, reads, writes, "scatter");
  }
  uint64_t ReduceAfter(MeshRank& mesh, uint64_t scattered) {
    const Prerequisite after[] = {{mesh.shards.get(), scattered}};
    const TensorRef operands[] = {shard, Ref(scratch)};
    return mesh.replicas->Submit(reduce, operands, operands, "reduce", after);
  }
  void ExpectSummed(const MeshRank& mesh) const {
    const int64_t first = mesh.shards->rank() * shard.elements;
    for (int64_t i = 0; i < shard.elements; ++i)  // ranks 0 to 3 add up to 1 + 2 + 3 + 4 times the first's
      ASSERT_EQ(shard.f32()[i], 10 * Gradient(0, first + i)) << i;
  }
};

class Prerequisites : public testing::TestWithParam<Transport> {};
// Not for devices, where queues wait instead (tests/runtime/nccl/communicator_test.cc).
INSTANTIATE_TEST_SUITE_P(Transports, Prerequisites,
                         testing::Values(Transport::kGloo, Transport::kThreads, Transport::kMpi),
                         [](const auto& info) { return NameOf(info.param); });

// Small operators (which begin inside Submit if they can), large ones, and more than the queue's own thread
// meets at once.
TEST_P(Prerequisites, AllReducesWhatAnotherGroupHasScattered) {
  WithMesh(GetParam(), [](MeshRank& mesh) {
    for (int64_t elements : {256, 60'000, 2'000'000}) {
      std::deque<Unit> units;
      std::vector<uint64_t> scattered, reduced;
      for (int i = 0; i < 3; ++i) {
        Unit& unit = units.emplace_back(elements, mesh);
        scattered.push_back(unit.Scatter(mesh));
        reduced.push_back(unit.ReduceAfter(mesh, scattered.back()));
      }
      for (size_t i = 0; i < units.size(); ++i) {
        EXPECT_OK(mesh.replicas->Wait(reduced[i]));
        EXPECT_OK(mesh.shards->Wait(scattered[i]));
        units[i].ExpectSummed(mesh);
        EXPECT_GE(mesh.replicas->TimesOf(reduced[i]).start, mesh.shards->TimesOf(scattered[i]).end);
      }
    }
  });
}

TEST_P(Prerequisites, TheSubmittingThreadDoesNotWait) {
  for (int64_t elements : {256, 2'000'000}) {
    const Shared<std::atomic<int>> have_submitted;
    WithMesh(GetParam(), [&](MeshRank& mesh) {
      Unit unit(elements, mesh);
      // Rank 3 comes only when the others' Submit has returned: none of their operators can have finished
      // before.
      while (mesh.rank == 3 && *have_submitted < 3) std::this_thread::sleep_for(milliseconds(1));
      const uint64_t scattered = unit.Scatter(mesh), reduced = unit.ReduceAfter(mesh, scattered);
      ++*have_submitted;
      EXPECT_OK(mesh.replicas->Wait(reduced));
      unit.ExpectSummed(mesh);
    });
  }
}

TEST_P(Prerequisites, ProgressesWhileNobodyWaits) {
  for (int64_t elements : {256, 60'000}) {
    WithMesh(GetParam(), [&](MeshRank& mesh) {
      Unit unit(elements, mesh);
      const uint64_t reduced = unit.ReduceAfter(mesh, unit.Scatter(mesh));
      const auto tickets = mesh.replicas->tickets();
      const auto deadline = Clock::now() + std::chrono::seconds(20);
      while (!tickets->IsDone(reduced) && Clock::now() < deadline)
        std::this_thread::sleep_for(milliseconds(1));
      EXPECT_TRUE(tickets->IsDone(reduced));
      EXPECT_OK(mesh.replicas->Wait(reduced));
      unit.ExpectSummed(mesh);
    });
  }
}

TEST_P(Prerequisites, OneThatIsDoneOrOfTheSameCommunicatorIsNoHindrance) {
  WithMesh(GetParam(), [](MeshRank& mesh) {
    std::vector<float> x = {1}, y = {2};
    const TensorRef first[] = {Ref(x)}, second[] = {Ref(y)};
    const uint64_t other = mesh.shards->Submit(AllReduceOf(1), first, first, "x");
    EXPECT_OK(mesh.shards->Wait(other));
    const uint64_t own = mesh.replicas->Submit(AllReduceOf(1), first, first, "x");
    const Prerequisite after[] = {{mesh.shards.get(), other}, {mesh.replicas.get(), own}};
    EXPECT_OK(mesh.replicas->Wait(mesh.replicas->Submit(AllReduceOf(1), second, second, "y", after)));
    EXPECT_EQ(x[0], 4.0f);
    EXPECT_EQ(y[0], 4.0f);
  });
}

// Rank 1 wants to scatter less than rank 0, so both fail. The operators that wait for these fail with the
// same message. The peers of those operators, whose own prerequisites are fine, do not wait for the deadline.
TEST_P(Prerequisites, AFailureGoesOnToWhatWaitsForItAndToItsPeers) {
  WithMesh(GetParam(), [](MeshRank& mesh) {
    const auto start = Clock::now();
    Unit unit(mesh.rank == 1 ? 128 : 256, mesh);
    const uint64_t scattered = unit.Scatter(mesh);
    const Prerequisite after[] = {{mesh.shards.get(), scattered}};
    const TensorRef x[] = {{unit.gradients.data(), 64}};
    const uint64_t reduced = mesh.replicas->Submit(AllReduceOf(64), x, x, "reduce", after);
    const Status failed = mesh.replicas->Wait(reduced);
    EXPECT_LT(Clock::now() - start, milliseconds(20'000));
    ASSERT_FALSE(failed);
    const std::string& text = failed.error().message;
    EXPECT_NE(text.find("reduce'"), std::string::npos) << text;
    if (mesh.rank < 2) {
      EXPECT_NE(text.find("of group 'shard 0': reduce_scatter 'scatter'"), std::string::npos) << text;
      // The rank that finds it says that ranks disagree; its peer may be told that this rank gave up, and
      // where.
      for (const char* scattered_here : {"reduce_scatter of 128 x fp32", "reduce_scatter of 256 x fp32"})
        EXPECT_NE(text.find(scattered_here), std::string::npos) << text;
    }
    // Asked again, it fails at once.
    EXPECT_FALSE(mesh.replicas->Wait(mesh.replicas->Submit(AllReduceOf(64), x, x, "reduce", after)));
  });
}

// Rank 3 never scatters, so rank 2's operator waits. Meanwhile rank 2 destroys its communicators, in either
// order.
TEST_P(Prerequisites, EndsAtOnceWhileAnOperatorWaits) {
  for (bool shards_first : {true, false}) {
    const Shared<std::atomic<bool>> done;
    const auto start = Clock::now();
    WithMesh(GetParam(), [&](MeshRank& mesh) {
      if (mesh.rank != 2) {
        while (!*done) std::this_thread::sleep_for(milliseconds(1));
        return;
      }
      Unit unit(256, mesh);
      unit.ReduceAfter(mesh, unit.Scatter(mesh));
      std::this_thread::sleep_for(milliseconds(50));
      (shards_first ? mesh.shards : mesh.replicas).reset();
      (shards_first ? mesh.replicas : mesh.shards).reset();
      *done = true;
    });
    EXPECT_LT(Clock::now() - start, milliseconds(20'000));
  }
}

}  // namespace
}  // namespace windtunnel
