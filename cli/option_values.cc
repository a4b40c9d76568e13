#include "cli/option_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

namespace windtunnel {
namespace {

// The port is empty if none is given.
std::pair<std::string, std::string> HostAndPort(const std::string& endpoint) {
  const bool has_brackets = endpoint.starts_with('[') && endpoint.find(']') != std::string::npos;
  const size_t end = has_brackets ? endpoint.find(']') : 0;
  const size_t colon = endpoint.find(':', end);
  const bool is_bare_address = !has_brackets && std::count(endpoint.begin(), endpoint.end(), ':') > 1;
  std::string host = is_bare_address ? endpoint : endpoint.substr(0, colon);
  if (has_brackets) host = endpoint.substr(1, end - 1);
  if (colon == std::string::npos || is_bare_address) return {host, ""};
  return {host, endpoint.substr(colon + 1)};
}

}  // namespace

CLI::Validator IsFinite() {
  const auto complaint = [](const std::string& text) {
    return std::isfinite(std::strtod(text.c_str(), nullptr)) ? std::string()
                                                             : text + " is not a finite number";
  };
  return CLI::Validator(complaint, "");
}

CLI::Validator TorchrunsCount(std::string name, std::string why) {
  const auto complaint = [name = std::move(name), why = std::move(why)](const std::string& text) {
    constexpr int kMost = 100'000;
    int count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && count >= 1 && count <= kMost) return std::string();
    return fmt::format("'{}' is not {} from 1 to {}{}", text, name, kMost, is_number ? "" : ": " + why);
  };
  return CLI::Validator(complaint, "");
}

CLI::Validator TokenCount() {
  const auto read = [](std::string& text) -> std::string {
    constexpr std::string_view kUnits = "KMBT";
    constexpr double kMost = 1e18;
    std::string_view number = text;
    double unit = 1;
    const char last = number.empty() ? ' ' : number.back();
    if (const size_t at =
            kUnits.find(last >= 'a' && last <= 'z' ? static_cast<char>(last - 'a' + 'A') : last);
        at != std::string_view::npos) {
      unit = std::pow(1000.0, static_cast<double>(at + 1));
      number.remove_suffix(1);
    }
    double count = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), count);
    const bool is_number = error == std::errc() && end == number.data() + number.size();
    if (!is_number || !(count * unit >= 1 && count * unit <= kMost))
      return fmt::format("'{}' is not a number of tokens, such as 15T, 300B or 2e9", text);
    text = fmt::format("{}", count * unit);
    return "";
  };
  return CLI::Validator(read, "");
}

std::string WrongSeed(const std::string& text) {
  int64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size() && seed >= 0) return "";
  return fmt::format("'{}' is not a whole number from 0 to {}", text, std::numeric_limits<int64_t>::max());
}

std::string WrongEndpoint(const std::string& endpoint) {
  const auto [host, port] = HostAndPort(endpoint);
  const bool has_port = endpoint.ends_with(':') || !port.empty();
  const bool is_number = !port.empty() && port.size() <= 5 &&
                         std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  const bool is_port = is_number && std::stoi(port) <= 65535;
  if (!host.empty() && (!has_port || is_port)) return "";
  return fmt::format("'{}', expected HOST or HOST:PORT, with a port of 1 to 65535 (0, any, on one node)",
                     endpoint);
}

void SetEndpoint(const std::string& endpoint, Options& options) {
  const auto [host, port] = HostAndPort(endpoint);
  options.master_addr = host;
  if (!port.empty()) options.master_port = std::stoi(port);
}

}  // namespace windtunnel
