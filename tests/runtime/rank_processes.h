// Ranks as processes that the test forks, for MPI, whose ranks cannot be threads of one process.
//
//   Shared<std::atomic<int>> arrived;
//   WithProcesses(2, [&](int rank, Store& store) { … ++*arrived; });   // a failure in there fails the test
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "runtime/cores.h"
#include "runtime/mpi.h"
#include "runtime/mpi_host.h"
#include "runtime/store.h"

namespace windtunnel {

// A value, or an array of values, in memory that the test shares with the ranks that it forks.
template <typename T>
class Shared {
 public:
  explicit Shared(size_t count = 1) : bytes_(std::max<size_t>(count, 1) * sizeof(T)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    values_ = new (memory) T[std::max<size_t>(count, 1)]();
  }
  ~Shared() { munmap(values_, bytes_); }
  Shared(const Shared&) = delete;

  T& operator*() const { return *values_; }
  T* operator->() const { return values_; }
  T& operator[](size_t i) const { return values_[i]; }
  T* data() const { return values_; }

 private:
  size_t bytes_;
  T* values_;
};

// Runs in the child: reads the store's port, does its work and exits.
[[noreturn]] inline void BecomeRank(int rank, int ranks, int port_pipe, const MpiHost& host,
                                    const std::function<void(int rank, Store&)>& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool had_failed = testing::Test::HasFailure();
  for (const auto& [name, value] : host.EnvironmentOf(rank)) setenv(name.c_str(), value.c_str(), 1);
  const auto run = [&] {
    int port = 0;
    ASSERT_EQ(read(port_pipe, &port, sizeof port), static_cast<ssize_t>(sizeof port));
    auto store = ConnectStore("127.0.0.1", port, "test", std::chrono::seconds(20));
    ASSERT_TRUE(store) << store.error().message;
    work(rank, **store);
    EndMpi(**store, rank, ranks, std::chrono::seconds(20));
  };
  run();
  fflush(nullptr);
  _exit(testing::Test::HasFailure() && !had_failed ? 1 : 0);
}

// Runs `work` as every rank of a job, each in a process with its own store connection.
inline void WithProcesses(int ranks, const std::function<void(int rank, Store&)>& work) {
  MpiJob job;
  job.world_size = job.local_ranks = ranks;
  auto host = MpiHost::Start(job);
  ASSERT_TRUE(host) << host.error().message;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) BecomeRank(rank, ranks, ends[0], **host, work);
    children.push_back(child);
  }
  auto server = ServeStore("127.0.0.1", 0, "test");
  ASSERT_TRUE(server) << server.error().message;
  const int port = (*server)->port();
  for (int rank = 0; rank < ranks; ++rank)
    ASSERT_EQ(write(ends[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << "rank " << rank << " was killed by signal " << WTERMSIG(status);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0) << "rank " << rank << " failed (above)";
    }
  }
  close(ends[0]);
  close(ends[1]);
}

}  // namespace windtunnel
