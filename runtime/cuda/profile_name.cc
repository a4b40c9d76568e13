#include <cctype>

#include "runtime/cuda/device.h"

namespace windtunnel {

std::string CudaProfileName(const CudaDeviceInfo& device) {
  const int64_t gigabytes = device.memory.count() / 1'000'000'000;
  const auto is = [&](const char* part) { return device.name.find(part) != std::string::npos; };
  if (is("H200") && !is("NVL")) return "h200-sxm-141g";
  if (is("H100") && is("HBM3") && gigabytes < 90) return "h100-sxm-80g";
  if (is("A100-SXM") && gigabytes > 60) return "a100-sxm-80g";
  if (is("A100-SXM")) return "a100-sxm-40g";
  std::string name;
  for (char c : device.name + " " + std::to_string(gigabytes) + "g") {
    const bool is_word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_word) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!is_word && !name.empty() && name.back() != '-') name += '-';
  }
  return name;
}

}  // namespace windtunnel
