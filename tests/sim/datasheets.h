// Profiles of devices from their datasheets.
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
// Has mxfp8 and fp4.
inline const Profile& B200() {
  static const Profile profile = Datasheet("b200-sxm-180g");
  return profile;
}
// A device with arithmetic in the number formats that GEMMs of `recipe` take.
inline const Profile& DatasheetFor(Fp8Recipe recipe) {
  if (recipe == Fp8Recipe::kMxfp8 || recipe == Fp8Recipe::kNvfp4) return B200();
  return recipe == Fp8Recipe::kNone ? A100() : H100();
}

}  // namespace windtunnel
