// Ranks for benchmarks: processes of this program, each pinned to a core, that run collectives in lock-step.
//
//   WT_ASSIGN_OR_RETURN(std::unique_ptr<RankGroup> group, RankGroup::Fork(2));
//   WT_ASSIGN_OR_RETURN(double seconds, group->Time({CollectiveKind::kAllReduce, elements}, /*warmup=*/5,
//   /*iterations=*/20));
//
// The calling process is rank 0. Fork it before the process starts threads of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "plan/op.h"
#include "runtime/communicator.h"

namespace windtunnel {

struct CollectiveCase {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int64_t elements = 0;  // fp32, of the whole message
};

class RankGroup {
 public:
  static Result<std::unique_ptr<RankGroup>> Fork(int ranks);
  ~RankGroup();  // ends and reaps the other ranks

  int size() const;
  // Seconds of one operator: the mean over `iterations` back to back, of the slowest rank.
  Result<double> Time(const CollectiveCase& what, int warmup, int iterations);
  // How many elements come out wrong, over all ranks.
  Result<int64_t> CountWrong(const CollectiveCase& what);

 private:
  struct Rank;
  RankGroup();

  std::unique_ptr<Rank> rank_;
  std::vector<pid_t> children_;
};

}  // namespace windtunnel
