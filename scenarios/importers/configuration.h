// Settings from the configuration files of other programs, by dotted names: "zero_optimization.stage".
#pragma once

#include <string>

#include "base/result.h"
#include "scenarios/importers/settings.h"

namespace windtunnel {

// Errors of both: InvalidInput "SOURCE:LINE:COLUMN: …" for text that is not in this format.

// JSON, or YAML, of objects within objects. A null counts as missing.
Result<Settings> ReadJsonSettings(const std::string& text, const std::string& source);
Result<Settings> ReadTomlSettings(const std::string& text, const std::string& source);

}  // namespace windtunnel
