// Messages that ranks leave in the store for the launcher and rank 0: a run's measurement, calibration
// samples, a step's report. The first byte chooses which.
#include <string>

#include "base/check.h"
#include "runtime/job.h"
#include "runtime/step_summary.h"

namespace windtunnel {
namespace {

template <typename T>
void RoundTrip(const Result<T>& parsed, Result<T> (*parse)(const std::string&)) {
  if (!parsed) return;
  const std::string bytes = Serialize(*parsed);
  const auto again = parse(bytes);
  if (!again) internal::CheckFailed(__FILE__, __LINE__, again.error().message);
  WT_CHECK(Serialize(*again) == bytes);
}

void Fuzz(const std::string& input) {
  if (input.empty()) return;
  const std::string bytes = input.substr(1);
  switch (input[0] % 3) {
    case 0:
      return RoundTrip(ParseRankRun(bytes), ParseRankRun);
    case 1:
      return RoundTrip(ParseRankCosts(bytes), ParseRankCosts);
    default:
      return RoundTrip(ParseStepOfRank(bytes), ParseStepOfRank);
  }
}

}  // namespace
}  // namespace windtunnel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  windtunnel::Fuzz(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
