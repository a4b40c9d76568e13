// A scenario file, and behind a zero byte an override. An accepted scenario is printed and read again as the
// same (plan_fuzz.cc compiles scenarios).
#include <algorithm>
#include <string>

#include "base/check.h"
#include "scenarios/load.h"
#include "scenarios/overrides.h"

namespace windtunnel {
namespace {

void Fuzz(const std::string& input) {
  const size_t end = std::min(input.find('\0'), input.size());
  std::vector<Override> overrides;
  if (end < input.size()) {
    if (const auto parsed = ParseOverride(input.substr(end + 1))) overrides.push_back(*parsed);
  }
  const auto scenario = ParseScenario(input.substr(0, end), "fuzz.yaml", "/nonexistent", overrides);
  if (!scenario) {
    WT_CHECK(!scenario.error().message.empty());
    return;
  }
  const std::string resolved = ResolvedYaml(*scenario);
  const auto again = ParseScenario(resolved, "resolved.yaml", "/nonexistent", {});
  if (!again) internal::CheckFailed(__FILE__, __LINE__, again.error().message + "\n" + resolved);
  WT_CHECK(ResolvedYaml(*again) == resolved);
}

}  // namespace
}  // namespace windtunnel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  windtunnel::Fuzz(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
