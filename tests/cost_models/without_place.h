// Errors of JSON files for tests whose file is printed by the program, so that what stands where is not the point.
#pragma once

#include <regex>
#include <string>

namespace windtunnel {

// "x.json:12:5: $.cores …" without 12:5.
inline std::string WithoutPlace(const std::string& message) {
  return std::regex_replace(message, std::regex("^([a-z]+\\.json):[0-9]+:[0-9]+: (?=\\$)"), "$1: ");
}

}  // namespace windtunnel
