#include "runtime/rank_environment.h"

#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace windtunnel {
namespace {

// The variable as a whole number in [least, most]; `otherwise` when it is not set.
Result<int> ReadNumber(const Environment& environment, const char* name, int least, int most,
                       const char* expected, int otherwise) {
  const char* text = environment(name);
  if (text == nullptr) return otherwise;
  int value = 0;
  const char* end = text + std::strlen(text);
  auto [stopped, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stopped != end || value < least || value > most)
    return InvalidInput("{} is '{}', expected {}", name, text, expected);
  return value;
}

}  // namespace

Result<std::optional<RankEnvironment>> ReadRankEnvironment(const Environment& environment) {
  const bool has_rank = environment("RANK") != nullptr, has_size = environment("WORLD_SIZE") != nullptr;
  if (!has_rank && !has_size) return std::nullopt;
  if (has_rank != has_size)
    return InvalidInput("{} is set but {} is not: a rank of a job needs both, any other process neither",
                        has_rank ? "RANK" : "WORLD_SIZE", has_rank ? "WORLD_SIZE" : "RANK");
  RankEnvironment result;
  WT_ASSIGN_OR_RETURN(result.world_size,
                      ReadNumber(environment, "WORLD_SIZE", 1, INT_MAX, "a positive integer", 1));
  WT_ASSIGN_OR_RETURN(result.rank,
                      ReadNumber(environment, "RANK", 0, result.world_size - 1,
                                 fmt::format("a rank below WORLD_SIZE = {}", result.world_size).c_str(), 0));
  WT_ASSIGN_OR_RETURN(
      result.local_world_size,
      ReadNumber(environment, "LOCAL_WORLD_SIZE", 1, result.world_size,
                 fmt::format("1 to WORLD_SIZE = {}", result.world_size).c_str(), result.world_size));
  WT_ASSIGN_OR_RETURN(
      result.local_rank,
      ReadNumber(environment, "LOCAL_RANK", 0, result.local_world_size - 1,
                 fmt::format("a rank below LOCAL_WORLD_SIZE = {}", result.local_world_size).c_str(),
                 result.rank % result.local_world_size));
  WT_ASSIGN_OR_RETURN(result.master_port,
                      ReadNumber(environment, "MASTER_PORT", 1, 65535, "a port, 1 to 65535", 29500));
  if (const char* address = environment("MASTER_ADDR"); address != nullptr && *address != '\0')
    result.master_addr = address;
  return result;
}

Result<std::optional<RankEnvironment>> ReadRankEnvironment() {
  return ReadRankEnvironment([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace windtunnel
