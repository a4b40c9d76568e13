// Where the files are that the command line names.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

// Goes to the directory that the user stands in, which under `bazel run` is not the one that the process starts in
// (BUILD_WORKING_DIRECTORY, or what ./bazelw noted when called from outside the checkout); every relative path, in arguments and in --set, counts from there. Failed when it is gone.
Status EnterUserDirectory();

// $XDG_CACHE_HOME/windtunnel or ~/.cache/windtunnel. InvalidInput when neither variable is set.
Result<std::string> CacheDirectory();

// Directories that may hold cost_models/profiles/: runfiles and the directory of the binary.
std::vector<std::string> InstallDirectories();

// Which of several processes this one is that mpirun or srun started: Open MPI's, PMI's or a Slurm step's variables.
struct JobProcess {
  int rank = 0, count = 1;
};
JobProcess ThisJobProcess();

// Writes `text` to `path` ("-": standard output). Failed when it cannot be written.
Status WriteText(const std::string& path, const std::string& text);

}  // namespace windtunnel
