// What the ranks of one machine tell each other before they set themselves up: whoever launched them may have given each a core or a GPU of
// its own, or all of them the same.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/store.h"

namespace windtunnel {

struct NeighborRank {
  int local_rank = 0, local_ranks = 1;                           // on its machine
  std::chrono::milliseconds patience{std::chrono::seconds(10)};  // with each of the others, which are there
};

// Says `own` about `what`: what each rank of the machine says, by local rank. Errors: Failed (one says nothing), the store's.
Result<std::vector<std::string>> TellNeighbors(Store& store, const NeighborRank& rank,
                                               const std::string& what, const std::string& own);

}  // namespace windtunnel
