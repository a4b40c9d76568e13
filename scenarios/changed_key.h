// Where two scenarios differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

struct ChangedKey {
  std::string key;          // "model.heads"
  std::string now, before;  // as ResolvedYaml writes values; "a block" for one
};

// The first key below `block` of which two resolved scenarios (ResolvedYaml) have different values, but for those in `free`. A key that
// `before` lacks, because an older program wrote it, is taken for unchanged. Errors: ParseYaml's.
Result<std::optional<ChangedKey>> FindChangedKey(const std::string& now, const std::string& before,
                                                 const std::string& block,
                                                 const std::vector<std::string>& free);

}  // namespace windtunnel
