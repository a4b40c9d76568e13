// The places of files that the command line names.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

// Changes to the directory that the user is in, from which every relative path counts, in arguments and in
// --set. Under `bazel run` the process starts in another one; the user's is in BUILD_WORKING_DIRECTORY, or
// noted by ./bazelw if that was called from outside the checkout. Errors: Failed if the directory is gone.
Status EnterUserDirectory();

// $XDG_CACHE_HOME/windtunnel or ~/.cache/windtunnel. Errors: InvalidInput if neither variable is set.
Result<std::string> CacheDirectory();

// Directories that may contain cost_models/profiles/: the runfiles, and the binary's directory.
std::vector<std::string> InstallDirectories();

// This process's number among those that mpirun or srun started, from the variables of Open MPI, PMI or a
// Slurm step.
struct JobProcess {
  int rank = 0, count = 1;
};
JobProcess ThisJobProcess();

// Writes `text` to standard output, at once. Errors: Failed if it takes nothing more.
Status Print(const std::string& text);

// Writes `text` to `path` ("-": standard output). Errors: Failed if it cannot be written.
Status WriteText(const std::string& path, const std::string& text);

}  // namespace windtunnel
