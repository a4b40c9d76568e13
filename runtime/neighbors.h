// Lets the ranks of one machine tell each other what they have before they set themselves up. Whoever
// launched them may have given each a core or a GPU of its own, or all of them the same. There may also be
// several launchers, each of which counts LOCAL_RANK from 0.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/store.h"

namespace windtunnel {

struct JobRank {
  int rank = 0, ranks = 1;  // in the job; or a node's number, and the job's number of nodes
  // For all of the others, which are running already.
  std::chrono::milliseconds patience{std::chrono::seconds(10)};
};

// The ranks of one machine, in the order of the job's.
struct Neighbors {
  std::vector<std::string> said;
  int own = 0;  // this rank's index
};

// Every rank of the job calls it and says `own` about `what`. Returns what the ranks of its machine say.
// Errors: Failed (a rank of the job says nothing), the store's.
Result<Neighbors> TellNeighbors(Store& store, const JobRank& rank, const std::string& what,
                                const std::string& own);

}  // namespace windtunnel
