#include <cctype>
#include <cstdlib>

#include "runtime/cuda/device.h"

namespace windtunnel {

std::string CudaProfileName(const CudaDeviceInfo& device) {
  const int64_t gigabytes = device.memory.count() / 1'000'000'000;
  const auto is = [&](const char* part) { return device.name.find(part) != std::string::npos; };
  const auto has = [&](int64_t of) { return std::abs(gigabytes - of) <= of / 10; };
  // A MIG slice of a GPU, or a variant with other rates.
  const bool is_part_or_other = is("MIG") || is("NVL") || is("GH200") || is("PCIe");
  if (!is_part_or_other) {
    if (is("GB300") && has(298)) return "gb300-nvl72-279g";
    if (is("B300") && !is("GB300") && has(288)) return "b300-sxm-270g";
    if (is("GB200") && has(198)) return "gb200-nvl72-186g";
    if (is("B200") && !is("GB200") && has(191)) return "b200-sxm-180g";
    if (is("H200") && has(150)) return "h200-sxm-141g";
    if (is("H100") && is("HBM3") && has(85)) return "h100-sxm-80g";
    if (is("H800") && has(85)) return "h800-sxm-80g";
    if (is("A800-SXM") && has(85)) return "a800-sxm-80g";
    if (is("A100-SXM") && has(85)) return "a100-sxm-80g";
    if (is("A100-SXM") && has(42)) return "a100-sxm-40g";
  }
  std::string name;
  for (char c : device.name + " " + std::to_string(gigabytes) + "g") {
    const bool is_word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_word) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!is_word && !name.empty() && name.back() != '-') name += '-';
  }
  return name;
}

}  // namespace windtunnel
