// Devices that are not at hand, by their datasheets.
#pragma once

#include "cost_models/device_spec.h"
#include "cost_models/profile.h"

namespace windtunnel {

inline Profile Datasheet(const char* name) {
  return ParseProfile(EmbeddedProfile(name).value(), name).value();
}

inline const Profile& A100() {
  static const Profile profile = Datasheet("a100-sxm-80g");
  return profile;
}
// Has fp8.
inline const Profile& H100() {
  static const Profile profile = Datasheet("h100-sxm-80g");
  return profile;
}

}  // namespace windtunnel
