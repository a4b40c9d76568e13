// Ranks for benchmarks: processes of this program, each pinned to a core, that run collectives in lock-step.
//
//   WT_ASSIGN_OR_RETURN(std::unique_ptr<RankGroup> group, RankGroup::Fork(2, Backend::kMpi));
//   WT_RETURN_IF_ERROR(group->Connect());
//   WT_ASSIGN_OR_RETURN(double seconds, group->Time({CollectiveKind::kAllReduce, elements}, /*warmup=*/5,
//   /*iterations=*/20));
//
// The calling process is rank 0. Fork all groups before the process starts threads; the first Connect starts
// some.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/ops.h"
#include "runtime/mpi_host.h"
#include "runtime/socket.h"
#include "scenarios/scenario.h"

namespace windtunnel {

struct CollectiveCase {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int64_t elements = 0;  // fp32 elements of the whole message
};

class RankGroup {
 public:
  // `backend` is gloo or mpi. With mpi, one group per process.
  static Result<std::unique_ptr<RankGroup>> Fork(int ranks, Backend backend);
  ~RankGroup();  // ends and reaps the other ranks

  Status Connect();
  int size() const;
  // Seconds per operator: the mean over `iterations` back-to-back calls, on the slowest rank.
  Result<double> Time(const CollectiveCase& what, int warmup, int iterations);
  // The number of wrong elements in the result, over all ranks.
  Result<int64_t> CountWrong(const CollectiveCase& what);

 private:
  struct Rank;
  RankGroup();

  std::unique_ptr<MpiHost> mpi_;  // outlives the ranks
  std::unique_ptr<Rank> rank_;
  std::vector<pid_t> children_;
  FileDescriptor port_pipe_;
};

// "gloo 0.5.0", "Open MPI v4.1.4"
std::string VersionOf(Backend backend);

}  // namespace windtunnel
