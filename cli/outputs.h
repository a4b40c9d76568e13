// Checks of the files that the options name, before any work is done for them.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/options.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Errors: InvalidInput, naming the options, if two outputs are one file, an output is a file that is read, or
// an output cannot be written. Files that do not exist yet are created and removed again; existing ones are
// not changed.
Status CheckOutputFiles(const Options& options);

// Errors: InvalidInput if an output is a file that the scenario names (data, model.config, a schedule, a
// framework profile).
Status CheckOutputsAgainst(const Scenario& scenario, const Options& options);

// Whether both paths name one regular file, existing or not yet.
bool IsOneFile(const std::string& a, const std::string& b);

// Makes the directory at `path`, unless that is empty. Errors: InvalidInput, naming the option, if it cannot
// be made or written to.
Status CheckOutputDirectory(const std::string& option, const std::string& path);

}  // namespace windtunnel
