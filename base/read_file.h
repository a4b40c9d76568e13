// Reading a file whole.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace windtunnel {

// The bytes of the file at `path`, which may also be a pipe. `expected` is what messages say should be there ("a scenario file").
// Errors: InvalidInput "PATH: cannot be read (No such file or directory), expected …", "PATH: is a directory, expected …", "PATH: is longer
// than 1 GiB, expected …" (of what is no file, and may never end).
Result<std::string> ReadFile(const std::string& path, std::string_view expected = "a file");

}  // namespace windtunnel
