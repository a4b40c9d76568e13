// Errors of JSON files without line and column, for tests in which the program prints the file, so that
// places do not matter.
#pragma once

#include <regex>
#include <string>

namespace windtunnel {

// "x.json:12:5: $.cores …" without 12:5.
inline std::string WithoutPlace(const std::string& message) {
  return std::regex_replace(message, std::regex("^([a-z]+\\.json):[0-9]+:[0-9]+: (?=\\$)"), "$1: ");
}

}  // namespace windtunnel
