// What the options name to be written and read, looked at before any work is done for it.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/options.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Errors: InvalidInput, naming the options, where two of them are one file, or one is a file that is read; where one could not be
// written. Files that are not there yet are made and removed again; what is written anew is left as it is.
Status CheckOutputFiles(const Options& options);

// Errors: InvalidInput, where an output is a file that the scenario names (data, model.config, a schedule, a framework profile).
Status CheckOutputsAgainst(const Scenario& scenario, const Options& options);

// Whether both name one regular file that is there, or would once it is.
bool IsOneFile(const std::string& a, const std::string& b);

// Makes the directory at `path`; nothing where that is empty. Errors: InvalidInput, naming the option, where it cannot be made or written
// in.
Status CheckOutputDirectory(const std::string& option, const std::string& path);

}  // namespace windtunnel
