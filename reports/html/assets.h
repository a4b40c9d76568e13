// The parts of the HTML report that are files in this folder or in third_party/vega, embedded in the program.
#pragma once

#include <string_view>

namespace windtunnel {

extern const std::string_view kReportPage, kReportStyle, kReportScript;
extern const std::string_view kVega, kVegaLite, kVegaEmbed;

}  // namespace windtunnel
