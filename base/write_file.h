// Writing a whole file, or all of a text to an open one.
#pragma once

#include <string>
#include <string_view>
#include <system_error>

namespace windtunnel {

// Writes all of `text` to the open file `file`, in as many parts as it takes. Goes on after signals.
std::error_code WriteAll(int file, std::string_view text);

// Writes `text` to a file beside `path`, which then replaces it and takes over its permissions. Readers see
// the old file or the new one, never a part. If the disk is full, the old one stays. Nothing is synced to the
// disk.
std::error_code ReplaceFile(const std::string& path, std::string_view text);

// Writes `text` to an output that a user has named: replaces a file, and writes through links, devices and
// pipes, and into files of directories that cannot be written to.
std::error_code WriteOutput(const std::string& path, std::string_view text);

}  // namespace windtunnel
