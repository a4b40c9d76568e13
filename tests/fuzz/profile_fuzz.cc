// A hardware profile or a datasheet. An accepted one is written and read again as the same, shown, checked
// and merged with itself.
#include <string>

#include "base/check.h"
#include "cost_models/profile.h"
#include "cost_models/profile_check.h"
#include "cost_models/profile_merge.h"
#include "reports/profile_table.h"

namespace windtunnel {
namespace {

void Fuzz(const std::string& input) {
  const auto profile = ParseProfile(input, "fuzz.json");
  if (!profile) return;
  const std::string json = ProfileJson(*profile);
  const auto again = ParseProfile(json, "again.json");
  if (!again) internal::CheckFailed(__FILE__, __LINE__, again.error().message + "\n" + json);
  WT_CHECK(ProfileJson(*again) == json);
  (void)ProfileTable(*profile, Ink(true));
  (void)FindingsTable(CheckProfile(*profile), Ink(true));
  (void)MergeProfiles({{"a", *profile}, {"b", *again}});
}

}  // namespace
}  // namespace windtunnel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  windtunnel::Fuzz(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
