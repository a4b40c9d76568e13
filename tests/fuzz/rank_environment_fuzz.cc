// The environment that a launcher gives a rank. An input is lines NAME=VALUE. Node lists are also read on
// their own.
#include <map>
#include <sstream>
#include <string>

#include "base/check.h"
#include "runtime/rank_environment.h"

namespace windtunnel {
namespace {

void Fuzz(const std::string& input) {
  std::map<std::string, std::string> variables;
  std::istringstream lines(input);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) variables[line.substr(0, equals)] = line.substr(equals + 1).c_str();
  }
  const auto environment = ReadRankEnvironment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  for (const auto& [name, value] : variables) (void)FirstHostOf(value);
  if (!environment || !*environment) return;
  const RankEnvironment& rank = **environment;
  WT_CHECK(rank.world_size >= 1 && rank.rank >= 0 && rank.rank < rank.world_size);
  WT_CHECK(rank.local_world_size >= 1 && rank.local_rank >= 0 && rank.local_rank < rank.local_world_size);
  WT_CHECK(rank.master_port > 0 && rank.master_port < 65536);
}

}  // namespace
}  // namespace windtunnel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  windtunnel::Fuzz(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
