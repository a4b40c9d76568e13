// A framework profile.
#include <string>

#include "base/check.h"
#include "cost_models/framework_profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto profile =
      windtunnel::ParseFrameworkProfile(std::string(reinterpret_cast<const char*>(data), size), "fuzz.json");
  if (!profile) WT_CHECK(!profile.error().message.empty());
  return 0;
}
