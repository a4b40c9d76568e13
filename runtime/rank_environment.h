// The environment contract of torchrun, as one rank reads it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace windtunnel {

struct RankEnvironment {
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;  // on this node
  std::string master_addr = "127.0.0.1";     // where rank 0 runs
  int master_port = 29500;
};

// What getenv answers: a variable's value, or null.
using Environment = std::function<const char*(const char* name)>;

// nullopt when neither RANK nor WORLD_SIZE is set: this process is no rank of a job. LOCAL_RANK and
// LOCAL_WORLD_SIZE are those of a single node when they are not set. Errors: InvalidInput ("WORLD_SIZE is
// 'x', expected a positive integer").
Result<std::optional<RankEnvironment>> ReadRankEnvironment(const Environment& environment);
// Of this process.
Result<std::optional<RankEnvironment>> ReadRankEnvironment();

}  // namespace windtunnel
