#include "runtime/neighbors.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/host_name.h"

namespace windtunnel {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

// What each rank of the job has said, with its machine ([machine, said] each). Empty if a rank has said
// nothing. Throws Json::exception.
Json Collected(Store& store, const JobRank& rank, const std::string& what) {
  const auto deadline = std::chrono::steady_clock::now() + rank.patience;
  Json all = Json::array();
  for (int other = 0; other < rank.ranks; ++other) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    const auto said = store.Get(fmt::format("{}/{}", what, other), std::max(left, milliseconds(0)));
    if (!said) return Json::array();
    all.push_back(Json::parse(*said));
  }
  return all;
}

// Throws Json::exception.
Result<Neighbors> Tell(Store& store, const JobRank& rank, const std::string& what, const std::string& own) {
  const std::string machine = BootId().value_or(HostName());
  WT_RETURN_IF_ERROR(store.Set(fmt::format("{}/{}", what, rank.rank), Json{machine, own}.dump()));
  const std::string all_key = what + "/all";
  if (rank.rank == 0) WT_RETURN_IF_ERROR(store.Set(all_key, Collected(store, rank, what).dump()));
  // Rank 0 itself may have come late, and then waits for the others as long as this rank has.
  WT_ASSIGN_OR_RETURN(const std::string text, store.Get(all_key, 2 * rank.patience));
  const Json all = Json::parse(text);
  if (all.empty()) return Failed("a rank does not tell its {}", what);
  Neighbors neighbors;
  for (int other = 0; other < rank.ranks; ++other) {
    if (all.at(other).at(0) != machine) continue;
    if (other == rank.rank) neighbors.own = static_cast<int>(neighbors.said.size());
    neighbors.said.push_back(all.at(other).at(1).get<std::string>());
  }
  return neighbors;
}

}  // namespace

Result<Neighbors> TellNeighbors(Store& store, const JobRank& rank, const std::string& what,
                                const std::string& own) {
  try {
    return Tell(store, rank, what, own);
  } catch (const Json::exception& error) {
    return Failed("what a rank tells of its {}: {}", what, error.what());
  }
}

}  // namespace windtunnel
