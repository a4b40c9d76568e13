// One profile out of several of the same machine and libraries. All costs of all of them: the tables are united. Where two have the same
// entry (key and ranks; collective, backend, ranks and bytes), that of the newer profile counts (`created`; of two equally old, of the one named later), whole:
// samples of two occasions are not mixed. The machine's drift is the newest profile's that measured one.
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
  std::vector<int64_t> entries_from = {};  // by profile given: how many entries are its
};

// REQUIRES: `profiles` not empty. Errors: InvalidInput for datasheets, and for profiles of different machines or library versions; names both and what
// differs.
Result<MergedProfile> MergeProfiles(const std::vector<NamedProfile>& profiles);

}  // namespace windtunnel
