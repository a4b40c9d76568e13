// The first key in which two scenarios differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

struct ChangedKey {
  std::string key;          // "model.heads"
  std::string now, before;  // as ResolvedYaml writes values; "a block" for a block
};

// Returns the first key below `block` that has different values in two resolved scenarios (ResolvedYaml),
// except the keys in `free`. A key that `before` lacks, because an older program wrote it, counts as
// unchanged. Errors: ParseYaml's.
Result<std::optional<ChangedKey>> FindChangedKey(const std::string& now, const std::string& before,
                                                 const std::string& block,
                                                 const std::vector<std::string>& free);

}  // namespace windtunnel
