#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "base/text.h"
#include "runtime/cuda/device.h"

namespace windtunnel {
namespace {

// A known device: what its driver's name begins with behind "NVIDIA " (or "Tesla "), and how much memory it has.
struct KnownGpu {
  std::string_view prefix;
  int64_t gigabytes;
  const char* profile;
};
constexpr std::array<KnownGpu, 26> kKnownGpus = {{{"GB300", 298, "gb300-nvl72-279g"},
                                                  {"B300", 288, "b300-sxm-270g"},
                                                  {"GB200", 198, "gb200-nvl72-186g"},
                                                  {"B200", 191, "b200-sxm-180g"},
                                                  {"H200", 150, "h200-sxm-141g"},
                                                  {"H100 80GB HBM3", 85, "h100-sxm-80g"},
                                                  {"H100 PCIe", 85, "h100-pcie-80g"},
                                                  {"H100 NVL", 99, "h100-nvl-94g"},
                                                  {"H800", 85, "h800-sxm-80g"},
                                                  {"H20", 102, "h20-sxm-96g"},
                                                  {"A800-SXM", 85, "a800-sxm-80g"},
                                                  {"A100-SXM", 85, "a100-sxm-80g"},
                                                  {"A100-SXM", 42, "a100-sxm-40g"},
                                                  {"A100 80GB PCIe", 85, "a100-pcie-80g"},
                                                  {"A10G", 23, "a10g-24g"},
                                                  {"L40S", 47, "l40s-48g"},
                                                  {"L4", 23, "l4-24g"},
                                                  {"V100-SXM2", 16, "v100-sxm2-16g"},
                                                  {"V100-SXM2", 34, "v100-sxm2-32g"},
                                                  {"T4", 15, "t4-16g"},
                                                  {"GeForce RTX 3090", 25, "rtx-3090-24g"},
                                                  {"GeForce RTX 4090", 25, "rtx-4090-24g"},
                                                  {"GeForce RTX 5090", 33, "rtx-5090-32g"},
                                                  {"RTX A6000", 51, "rtx-a6000-48g"},
                                                  {"RTX 6000 Ada", 51, "rtx-6000-ada-48g"},
                                                  {"RTX PRO 6000 Blackwell", 102, "rtx-pro-6000-96g"}}};

// Whether the name goes on with another word than the device's own: a variant with other rates ("H200 NVL",
// "H800 PCIe", "RTX 4090 D", "RTX 3090 Ti"), or a MIG slice.
bool IsVariant(std::string_view rest) {
  for (const std::string_view other : {"NVL", "PCIe", "MIG", "Laptop", "Max-Q"})
    if (rest.find(other) != std::string_view::npos) return true;
  return rest == " D" || rest == " Ti" ||
         (!rest.empty() && std::isalnum(static_cast<unsigned char>(rest[0])) != 0);
}

}  // namespace

std::string CudaProfileName(const CudaDeviceInfo& device) {
  const int64_t gigabytes = device.memory.count() / 1'000'000'000;
  std::string_view model = device.name;
  for (const std::string_view vendor : {"NVIDIA ", "Tesla "})
    if (model.starts_with(vendor)) model.remove_prefix(vendor.size());
  for (const KnownGpu& known : kKnownGpus) {
    if (!model.starts_with(known.prefix) || std::abs(gigabytes - known.gigabytes) > known.gigabytes / 10)
      continue;
    std::string_view rest = model.substr(known.prefix.size());
    if (known.prefix.ends_with("SXM") && !rest.empty()) rest.remove_prefix(1);  // SXM4, SXM5
    if (!IsVariant(rest)) return known.profile;
  }
  return Slug(device.name + " " + std::to_string(gigabytes) + "g");
}

}  // namespace windtunnel
