#include "runtime/neighbors.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/host_name.h"

namespace windtunnel {
namespace {

using Json = nlohmann::json;

// What each rank of the job has said, with its machine ([machine, said] each). Empty if a rank has said
// nothing. Throws Json::exception.
Json Collected(Store& store, const JobRank& rank, const std::string& what) {
  const auto said = GetAll(store, what + "/", rank.ranks, rank.patience);
  Json all = Json::array();
  if (!said) return all;
  for (const std::string& of_rank : *said) all.push_back(Json::parse(of_rank));
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
