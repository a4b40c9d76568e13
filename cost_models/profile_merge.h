// Merges several profiles of the same machine and libraries into one. The result has all costs of all of
// them. If two profiles have the same entry (key and ranks; collective, backend, ranks and bytes), the newer
// profile's entry counts (by `created`; of two equally old profiles, that of the one named later). Entries
// are taken whole: samples of two occasions are not mixed. The machine's drift is that of the newest profile
// that measured one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost_models/profile.h"

namespace windtunnel {

struct NamedProfile {
  std::string name;  // in errors and in `entries_from`
  Profile profile;
};

struct MergedProfile {
  Profile profile;                         // `created` is the newest one's
  std::vector<int64_t> entries_from = {};  // indexed like `profiles`: how many of the entries are from it
};

// REQUIRES: `profiles` not empty. Errors: InvalidInput for datasheets, and for profiles of different machines
// or library versions; it names both and what differs.
Result<MergedProfile> MergeProfiles(const std::vector<NamedProfile>& profiles);

}  // namespace windtunnel
