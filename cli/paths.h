// Where the files are that the command line names.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

// `path` as the user means it: relative to the directory that the user stands in, which under `bazel run` is
// not the process's own (BUILD_WORKING_DIRECTORY). An input that only exists relative to the process is taken
// from there.
std::string InputPath(const std::string& path);
std::string OutputPath(const std::string& path);

// $XDG_CACHE_HOME/windtunnel or ~/.cache/windtunnel. InvalidInput when neither variable is set.
Result<std::string> CacheDirectory();

// Directories that may hold cost_models/profiles/: runfiles and the directory of the binary.
std::vector<std::string> InstallDirectories();

// Writes `text` to `path` ("-": standard output). Failed when it cannot be written.
Status WriteText(const std::string& path, const std::string& text);

}  // namespace windtunnel
