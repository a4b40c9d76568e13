#include "runtime/neighbors.h"

#include <fmt/format.h>

#include "base/host_name.h"

namespace windtunnel {
Result<std::vector<std::string>> TellNeighbors(Store& store, const NeighborRank& rank,
                                               const std::string& what, const std::string& own) {
  const std::string machine = BootId().value_or(HostName());
  const auto key = [&](int local_rank) { return fmt::format("{}/{}/{}", what, machine, local_rank); };
  WT_RETURN_IF_ERROR(store.Set(key(rank.local_rank), own));
  std::vector<std::string> said;
  for (int other = 0; other < rank.local_ranks; ++other) {
    if (other == rank.local_rank) {
      said.push_back(own);
      continue;
    }
    WT_ASSIGN_OR_RETURN(said.emplace_back(), store.Get(key(other), rank.patience));
  }
  return said;
}

}  // namespace windtunnel
