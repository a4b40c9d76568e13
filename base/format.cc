#include "base/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace windtunnel {
namespace {

// Three significant digits: 1.23, 12.3, 123.
std::string ThreeDigits(double value) {
  double magnitude = std::fabs(value);
  int decimals = magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}", value, decimals);
}

template <size_t N>
std::string Scaled(double value, double base, const std::array<std::string_view, N>& units) {
  size_t unit = 0;
  while (unit + 1 < N && std::fabs(value) >= 0.9995 * base) {
    value /= base;
    ++unit;
  }
  return fmt::format("{}{}",
                     unit == 0 && value == std::floor(value) ? fmt::format("{}", value) : ThreeDigits(value),
                     units[unit]);
}

}  // namespace

std::string FormatDuration(Duration duration) {
  static constexpr std::array<std::string_view, 5> kUnits = {" ps", " ns", " us", " ms", " s"};
  return Scaled(static_cast<double>(duration.picoseconds()), 1000, kUnits);
}

std::string FormatTime(Duration duration) { return duration == Duration() ? "0" : FormatDuration(duration); }

std::string FormatBytes(Bytes bytes) {
  static constexpr std::array<std::string_view, 6> kUnits = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  return Scaled(static_cast<double>(bytes.count()), 1024, kUnits);
}

std::string FormatBandwidth(Bandwidth bandwidth) {
  static constexpr std::array<std::string_view, 5> kUnits = {" B/s", " KB/s", " MB/s", " GB/s", " TB/s"};
  return Scaled(bandwidth.bytes_per_second(), 1000, kUnits);
}

std::string FormatFlopRate(FlopRate rate) {
  static constexpr std::array<std::string_view, 6> kUnits = {" FLOP/s",  " KFLOP/s", " MFLOP/s",
                                                             " GFLOP/s", " TFLOP/s", " PFLOP/s"};
  return Scaled(rate.flops_per_second(), 1000, kUnits);
}

std::string FormatCount(double count) {
  static constexpr std::array<std::string_view, 5> kUnits = {"", "K", "M", "B", "T"};
  return Scaled(count, 1000, kUnits);
}

std::string FormatShape(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, " x "));
}

std::string NounFor(int64_t count, std::string_view noun) {
  if (count == 1) return std::string(noun);
  return fmt::format("{}{}", noun, noun.ends_with("s") || noun.ends_with("ch") ? "es" : "s");
}

std::string Counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}", count, NounFor(count, noun));
}

double UnsignedNan(double number) {
  return std::isnan(number) ? std::numeric_limits<double>::quiet_NaN() : number;
}

std::string FormatPercent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

std::string FormatSignedPercent(double fraction) { return fmt::format("{:+.1f} %", 100 * fraction); }

}  // namespace windtunnel
