// Where temporary files go: $TMPDIR, or /tmp where that is not set or empty.
#pragma once

#include <string>

#include "base/result.h"

namespace windtunnel {

// Without a look at what is there.
std::string TemporaryPath();

// Makes a directory of a new name, "PREFIX-" and six characters, for this user alone; the path. Whoever asked for it removes it.
// Errors: InvalidInput "TMPDIR is '/x', expected a directory"; Failed where nothing can be made in it.
Result<std::string> MakeTemporaryDirectory(const std::string& prefix);

}  // namespace windtunnel
