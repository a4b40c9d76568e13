// Parsing the command line (docs/contract.md, "Command line"). The only file that knows CLI11.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"

namespace windtunnel {

// `arguments` without the program's name. InvalidInput for wrong usage: the message says what was expected.
Result<Options> ParseCommandLine(const std::vector<std::string>& arguments);

}  // namespace windtunnel
