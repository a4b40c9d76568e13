#include "scenarios/characters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace windtunnel {
namespace {

// The length in bytes of the character that `text` begins with; 0 if it begins with none.
size_t CharacterLength(std::string_view text) {
  const auto within = [&](size_t i, unsigned char least, unsigned char most) {
    return i < text.size() && static_cast<unsigned char>(text[i]) >= least &&
           static_cast<unsigned char>(text[i]) <= most;
  };
  const auto tail = [&](size_t i) { return within(i, 0x80, 0xBF); };
  if (within(0, 0x00, 0x7F)) return 1;
  if (within(0, 0xC2, 0xDF)) return tail(1) ? 2 : 0;
  // No overlong forms, no surrogates, nothing above U+10FFFF.
  if (within(0, 0xE0, 0xE0)) return within(1, 0xA0, 0xBF) && tail(2) ? 3 : 0;
  if (within(0, 0xED, 0xED)) return within(1, 0x80, 0x9F) && tail(2) ? 3 : 0;
  if (within(0, 0xE1, 0xEF)) return tail(1) && tail(2) ? 3 : 0;
  if (within(0, 0xF0, 0xF0)) return within(1, 0x90, 0xBF) && tail(2) && tail(3) ? 4 : 0;
  if (within(0, 0xF4, 0xF4)) return within(1, 0x80, 0x8F) && tail(2) && tail(3) ? 4 : 0;
  if (within(0, 0xF1, 0xF3)) return tail(1) && tail(2) && tail(3) ? 4 : 0;
  return 0;
}

// The code point of the control character that `text` begins with; -1 if it begins with none.
int ControlAt(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  if (byte < 0x20 || byte == 0x7F) return byte;
  if (byte != 0xC2 || text.size() < 2) return -1;
  const auto second = static_cast<unsigned char>(text[1]);
  return second >= 0x80 && second <= 0x9F ? second : -1;
}

}  // namespace

size_t Utf8Prefix(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const size_t length = CharacterLength(text.substr(end));
    if (length == 0) return end;
    end += length;
  }
  return end;
}

bool HasControlCharacters(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i)
    if (ControlAt(text.substr(i)) >= 0 && text[i] != '\n' && text[i] != '\t') return true;
  return false;
}

std::string Printable(std::string_view text) {
  std::string printable;
  for (size_t i = 0; i < text.size(); ++i) {
    const int control = ControlAt(text.substr(i));
    if (control < 0) {
      printable += text[i];
    } else {
      printable += control == '\n' ? "\\n" : fmt::format("\\x{:02x}", control);
      if (control >= 0x80) ++i;
    }
  }
  return printable;
}

std::string ShellWord(const std::string& text) {
  constexpr std::string_view kPlain = "_-+=.,:/@%";
  const auto is_plain = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace windtunnel
