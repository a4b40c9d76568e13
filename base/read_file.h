// Reading a whole file.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace windtunnel {

// The bytes of the file at `path`, which may also be a pipe. `expected` says in messages what the file should
// be ("a scenario file"). Errors: InvalidInput "PATH: cannot be read (No such file or directory), expected
// …", "PATH: is a directory, expected …", "PATH: is longer than 1 GiB, expected …" (only if it is not a
// regular file, and so may never end).
Result<std::string> ReadFile(const std::string& path, std::string_view expected = "a file");

}  // namespace windtunnel
