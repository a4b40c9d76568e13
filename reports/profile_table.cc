#include "reports/profile_table.h"

#include <fmt/format.h>

#include "base/format.h"

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

std::string KernelTable(const Profile& profile, Ink ink) {
  if (profile.kernels.empty()) return "";
  std::string text = "\n" +
                     ink.Bold(fmt::format("{:<56}{:>6}{:>7}{:>10}{:>10}{:>10}", "kernel", "ranks", "count",
                                          "p10", "p50", "p90")) +
                     "\n";
  for (const KernelEntry& entry : profile.kernels)
    text += fmt::format("{:<56}{:>6}{:>7}{}\n", entry.key, entry.ranks, entry.count, Times(entry.time));
  return text;
}

// The rate is that of the message over the median time, as nccl-tests' algbw.
std::string CollectiveTable(const Profile& profile, Ink ink) {
  if (profile.collectives.empty()) return "";
  std::string text = "\n" +
                     ink.Bold(fmt::format("{:<32}{:>6}{:>11}{:>7}{:>10}{:>10}{:>10}{:>12}", "collective",
                                          "ranks", "bytes", "count", "p10", "p50", "p90", "rate")) +
                     "\n";
  for (const CollectiveEntry& entry : profile.collectives) {
    bool has_rate = entry.bytes > Bytes(0) && entry.time.p50() > Duration();
    text += fmt::format("{:<32}{:>6}{:>11}{:>7}{}{:>12}\n", entry.op + " " + entry.backend, entry.ranks,
                        FormatBytes(entry.bytes), entry.count, Times(entry.time),
                        has_rate ? FormatBandwidth(entry.bytes / entry.time.p50()) : "");
  }
  return text;
}

std::string HardwareTable(const DeviceSpec& device, Ink ink) {
  std::string text = ink.Bold(ink.Cyan(device.name)) + "  " + device.description + ", from its datasheet\n";
  auto row = [&text](const char* label, const std::string& value) {
    text += fmt::format("  {:<26}{}\n", label, value);
  };
  row("memory", FormatBytes(device.memory));
  row("HBM", fmt::format("{} x {:.2f}", FormatBandwidth(device.hbm), device.hbm_efficiency));
  row("multiprocessors", std::to_string(device.multiprocessors));
  for (const auto& [type, peak] : device.peaks)
    if (peak > FlopRate()) row(fmt::format("peak {}", type).c_str(), FormatFlopRate(peak));
  row("GEMM ceiling", fmt::format("{:.1f} %", 100 * device.gemm.ceiling));
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
  text += KernelTable(profile, ink) + CollectiveTable(profile, ink);
  if (!profile.dispatch.empty()) text += "\n";
  for (const auto& [ranks, time] : profile.dispatch)
    text += fmt::format("{:<69}{}\n", fmt::format("dispatch of an operator, {} ranks", ranks), Times(time));
  for (const OutsideAllocatorEntry& entry : profile.outside_allocator)
    text += fmt::format("outside the allocator, {} ranks over {}: {}\n", entry.ranks, entry.backend,
                        FormatBytes(entry.bytes));
  return text;
}

}  // namespace windtunnel
