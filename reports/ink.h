// Terminal colours, which can be switched off: every function then returns its text unchanged. Pad text
// before colouring it.
#pragma once

#include <string>
#include <string_view>

namespace windtunnel {

class Ink {
 public:
  explicit constexpr Ink(bool colour) : colour_(colour) {}

  std::string Bold(std::string_view text) const { return Wrap("1", text); }
  std::string Dim(std::string_view text) const { return Wrap("2", text); }
  std::string Red(std::string_view text) const { return Wrap("31", text); }
  std::string Green(std::string_view text) const { return Wrap("32", text); }
  std::string Cyan(std::string_view text) const { return Wrap("36", text); }

 private:
  std::string Wrap(std::string_view code, std::string_view text) const {
    if (!colour_ || text.empty()) return std::string(text);
    return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
  }

  bool colour_;
};

}  // namespace windtunnel
