#include "reports/profile_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/format.h"
#include "cost_models/key_work.h"

namespace windtunnel {
namespace {

std::string Pairs(const std::map<std::string, std::string>& pairs) {
  std::string text;
  for (const auto& [name, value] : pairs)
    text += fmt::format("{}{} {}", text.empty() ? "" : " · ", name, value);
  return text;
}

std::string Times(const Distribution& time) {
  return fmt::format("{:>10}{:>10}{:>10}", FormatDuration(time.p10()), FormatDuration(time.p50()),
                     FormatDuration(time.p90()));
}

// The width of the widest of `labels` and the heading.
size_t Width(const std::string& heading, const std::vector<std::string>& labels) {
  size_t width = heading.size();
  for (const std::string& label : labels) width = std::max(width, label.size());
  return width;
}

// The kernel's rate at its median time: FLOP/s for products, and for kernels that only move data the least
// bytes that they must move per second.
std::string RateOf(const KernelEntry& entry) {
  const KeyWork work(entry.key);
  const Duration time = entry.time.p50();
  if (time <= Duration()) return "";
  if (work.flops > Flops())
    return FormatFlopRate(FlopRate::FromFlopsPerSecond(work.flops.count() / ToSeconds(time)));
  return work.traffic > Bytes() ? FormatBandwidth(work.traffic / time) : "";
}

std::string KernelTable(const Profile& profile, Ink ink) {
  if (profile.kernels.empty()) return "";
  std::vector<std::string> keys;
  for (const KernelEntry& entry : profile.kernels) keys.push_back(entry.key);
  const size_t width = Width("kernel", keys);
  std::string text = "\n" +
                     ink.Bold(fmt::format("{:<{}}{:>7}{:>8}{:>10}{:>10}{:>10}{:>14}", "kernel", width,
                                          "ranks", "count", "p10", "p50", "p90", "rate")) +
                     "\n";
  for (const KernelEntry& entry : profile.kernels)
    text += fmt::format("{:<{}}{:>7}{:>8}{}{:>14}\n", entry.key, width, entry.ranks, entry.count,
                        Times(entry.time), RateOf(entry));
  return text;
}

// The rate is the message's bytes over the median time, as nccl-tests' algbw.
std::string CollectiveTable(const Profile& profile, Ink ink) {
  if (profile.collectives.empty()) return "";
  std::vector<std::string> names;
  for (const CollectiveEntry& entry : profile.collectives) names.push_back(entry.op + " " + entry.backend);
  const size_t width = Width("collective", names);
  std::string text = "\n" +
                     ink.Bold(fmt::format("{:<{}}{:>7}{:>11}{:>8}{:>10}{:>10}{:>10}{:>14}{:>11}{:>18}",
                                          "collective", width, "ranks", "bytes", "count", "p10", "p50", "p90",
                                          "rate", "core time", "beside compute")) +
                     "\n";
  for (size_t i = 0; i < names.size(); ++i) {
    const CollectiveEntry& entry = profile.collectives[i];
    bool has_rate = entry.bytes > Bytes(0) && entry.time.p50() > Duration();
    std::string beside;
    if (entry.collective_rate_under_compute && entry.compute_rate_under_collective)
      beside = fmt::format("{:.2f} and {:.2f}", *entry.collective_rate_under_compute,
                           *entry.compute_rate_under_collective);
    text += fmt::format("{:<{}}{:>7}{:>11}{:>8}{}{:>14}{:>11}{:>18}\n", names[i], width, entry.ranks,
                        FormatBytes(entry.bytes), entry.count, Times(entry.time),
                        has_rate ? FormatBandwidth(entry.bytes / entry.time.p50()) : "",
                        FormatDuration(entry.core_time), beside);
  }
  return text +
         ink.Dim(
             "core time of one rank; beside compute: the collective's speed and that of the computation, "
             "each over what it is alone") +
         "\n";
}

// Host times by number of ranks on the node, then the memory that libraries hold.
std::string HostTable(const Profile& profile, Ink ink) {
  std::string text;
  if (!profile.dispatch.empty())
    text +=
        "\n" +
        ink.Bold(fmt::format("{:<26}{:>7}{:>10}{:>10}{:>10}", "host time", "ranks", "p10", "p50", "p90")) +
        "\n";
  for (const auto& [ranks, time] : profile.dispatch)
    text += fmt::format("{:<26}{:>7}{}\n", "dispatch of an operator", ranks, Times(time));
  if (!profile.outside_allocator.empty())
    text +=
        "\n" + ink.Bold(fmt::format("{:<26}{:>7}{:>12}", "outside the allocator", "ranks", "a rank")) + "\n";
  for (const OutsideAllocatorEntry& entry : profile.outside_allocator)
    text += fmt::format("{:<26}{:>7}{:>12}\n", entry.backend, entry.ranks, FormatBytes(entry.bytes));
  text += fmt::format("\ndrift of the machine: {:.3f} to {:.3f} (p10 to p90)\n", profile.common_mode[3],
                      profile.common_mode[7]);
  return text;
}

std::string HardwareTable(const DeviceSpec& device, Ink ink) {
  std::string text = ink.Bold(ink.Cyan(device.name)) + "  " + device.description + ", from its datasheet\n";
  auto row = [&text](const char* label, const std::string& value) {
    text += fmt::format("  {:<26}{}\n", label, value);
  };
  row("memory", FormatBytes(device.memory));
  row("HBM", fmt::format("{}, of which kernels reach {:.0f} %", FormatBandwidth(device.hbm),
                         100 * device.hbm_efficiency));
  row("multiprocessors", std::to_string(device.multiprocessors));
  for (const auto& [type, peak] : device.peaks)
    if (peak > FlopRate()) row(fmt::format("peak {}", type).c_str(), FormatFlopRate(peak));
  row("GEMM ceiling", FormatPercent(device.gemm.ceiling));
  if (device.gemm.slowest_ceiling > 0)
    row("GEMM ceiling of the slowest machine", FormatPercent(device.gemm.slowest_ceiling));
  if (device.PeakFor(DType::kFloat8) > FlopRate())
    row("GEMM ceiling in fp8", fmt::format("{:.1f} %, {:.1f} % with sums carried over to fp32",
                                           100 * device.gemm.ceiling * device.gemm.fp8_share,
                                           100 * device.gemm.ceiling * device.gemm.fp8_precise_share));
  if (device.PeakFor(DType::kMxFloat8) > FlopRate())
    row("GEMM ceiling in mxfp8",
        fmt::format("{:.1f} %", 100 * device.gemm.ceiling * device.gemm.mxfp8_share));
  if (device.PeakFor(DType::kFloat4x2) > FlopRate())
    row("GEMM ceiling in fp4", fmt::format("{:.1f} %", 100 * device.gemm.ceiling * device.gemm.fp4_share));
  row("spread of devices' speeds", FormatPercent(device.speed_spread));
  row("kernel launch, minimum",
      FormatDuration(device.kernel_launch) + ", " + FormatDuration(device.kernel_minimum));
  row("neighbours, host", device.intra_node + ", " + FormatBandwidth(device.host_link));
  text += "\n" + ink.Bold("sources") + "\n";
  for (const auto& [field, source] : device.sources) text += fmt::format("  {:<30}{}\n", field, source);
  return text;
}

}  // namespace

std::string ProfileTable(const Profile& profile, Ink ink) {
  if (profile.hardware) return HardwareTable(*profile.hardware, ink);
  std::string text =
      ink.Bold(ink.Cyan(profile.name)) +
      fmt::format("  {} · {} cores · measured {}\n", profile.device, profile.cores, profile.created);
  text += "  " + Pairs(profile.machine) + "\n  " + Pairs(profile.libraries) + "\n";
  return text + KernelTable(profile, ink) + CollectiveTable(profile, ink) + HostTable(profile, ink);
}

std::string FindingsTable(const std::vector<ProfileFinding>& findings, Ink ink) {
  std::string text;
  for (const ProfileFinding& finding : findings) {
    const std::string severity = fmt::format("  {:<11}", finding.impossible ? "impossible" : "suspicious");
    text += (finding.impossible ? ink.Red(severity) : ink.Cyan(severity)) + finding.where + ": " +
            finding.what + "\n";
  }
  return text;
}

}  // namespace windtunnel
