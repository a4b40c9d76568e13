// SHA-256 (FIPS 180-4), for digests of scenarios and profiles.
#pragma once

#include <string>
#include <string_view>

namespace windtunnel {

// The digest of `data` as 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view data);

}  // namespace windtunnel
