// A process group whose ranks are threads of the test's process or, over MPI, processes that it forks.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/mpi.h"
#include "runtime/thread_communicator.h"
#include "tests/runtime/queued_device.h"
#include "tests/runtime/rank_processes.h"

namespace windtunnel {

// Runs `work` as every rank of a job, each in a thread with its own store connection.
inline void WithStores(int ranks, const std::function<void(int rank, Store&)>& work) {
  auto server = ServeStore("127.0.0.1", 0, "test");
  ASSERT_TRUE(server) << server.error().message;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto store = ConnectStore("127.0.0.1", (*server)->port(), "test", std::chrono::seconds(20));
      ASSERT_TRUE(store) << store.error().message;
      work(rank, **store);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Runs `work` as every rank of a group of threads.
inline void WithThreads(int size, std::chrono::milliseconds timeout,
                        const std::function<void(const std::shared_ptr<ThreadGroup>&, int rank)>& work) {
  const auto group = MakeThreadGroup({.name = "group", .size = size, .timeout = timeout});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&, rank] { work(group, rank); });
  for (std::thread& thread : threads) thread.join();
}

// The transport that runs a group's operators. kDevices: threads, each with a device that is late on purpose.
enum class Transport { kGloo, kThreads, kMpi, kDevices };
inline constexpr Transport kTransports[] = {Transport::kGloo, Transport::kThreads, Transport::kMpi,
                                            Transport::kDevices};
inline std::string NameOf(Transport transport) {
  constexpr const char* kNames[] = {"Gloo", "Threads", "Mpi", "Devices"};
  return kNames[static_cast<int>(transport)];
}
inline void PrintTo(Transport transport, std::ostream* out) { *out << NameOf(transport); }

// Runs `work` as every rank of a group, and `after` once the rank's communicator is destroyed. State that
// they share with the test or with other ranks must be Shared (rank_processes.h).
inline void WithGroup(
    Transport transport, int size, const std::function<void(Communicator&)>& work,
    std::chrono::milliseconds timeout = std::chrono::seconds(60),
    const std::function<void(int rank)>& after = [](int) {}) {
  if (transport == Transport::kThreads) {
    WithThreads(size, timeout, [&](const auto& group, int rank) {
      work(*MakeThreadCommunicator(group, rank));
      after(rank);
    });
    return;
  }
  if (transport == Transport::kDevices) {
    WithThreads(size, timeout, [&](const auto& group, int rank) {
      QueuedDevice device(std::chrono::microseconds(200));
      auto communicator = MakeDeviceThreadCommunicator(group, rank, device);
      ASSERT_TRUE(communicator) << communicator.error().message;
      work(**communicator);
      communicator->reset();
      after(rank);
      EXPECT_EQ(device.failure(), "");
    });
    return;
  }
  if (transport == Transport::kMpi) {
    WithProcesses(size, [&](int rank, Store& store) {
      // On a busy machine MPI takes longer to start than the deadlines of tests are.
      const Status started = StartMpi(std::chrono::seconds(60));
      ASSERT_TRUE(started) << started.error().message;
      auto group = MakeMpiCommunicator(store, {.name = "group",
                                               .rank = rank,
                                               .size = size,
                                               .timeout = timeout,
                                               .shares_core = size > UsableCores()});
      ASSERT_TRUE(group) << group.error().message;
      work(**group);
      group->reset();
      after(rank);
    });
    return;
  }
  WithStores(size, [&](int rank, Store& store) {
    auto group =
        MakeGlooCommunicator(store, {.name = "group", .rank = rank, .size = size, .timeout = timeout});
    ASSERT_TRUE(group) << group.error().message;
    work(**group);
    group->reset();
    after(rank);
  });
}

template <typename T>
TensorRef Ref(std::vector<T>& values) {
  return {values.data(), static_cast<int64_t>(values.size())};
}

inline Status RunCollective(Communicator& group, const Collective& op, TensorRef read, TensorRef written) {
  constexpr float kCanary = -12345.0f;
  const int64_t needed = CollectiveScratchElements(op, group.size());
  std::vector<float> scratch(static_cast<size_t>(needed) + 1, kCanary);
  const TensorRef reads[] = {read}, writes[] = {written, {scratch.data(), needed}};
  Status status = group.Wait(group.Submit(op, reads, writes, "test"));
  EXPECT_EQ(scratch.back(), kCanary) << "wrote beyond its scratch";
  return status;
}

#define EXPECT_OK(expression)                              \
  do {                                                     \
    auto wt_checked = (expression);                        \
    EXPECT_TRUE(wt_checked) << wt_checked.error().message; \
  } while (false)

inline Collective AllReduceOf(int64_t elements) {
  return {CollectiveKind::kAllReduce, DType::kFloat32, elements, 0};
}

}  // namespace windtunnel
