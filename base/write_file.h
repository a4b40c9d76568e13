// Writing a file whole.
#pragma once

#include <string>
#include <string_view>
#include <system_error>

namespace windtunnel {

// Writes `text` to a file beside `path`, which then takes its place and has its permissions: readers see the old file or the new one, never a
// part, and where the disk is full the old one stays. Nothing is forced to the disk.
std::error_code ReplaceFile(const std::string& path, std::string_view text);

}  // namespace windtunnel
