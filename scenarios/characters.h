// Which characters text may have: UTF-8 without anything that a terminal or an XML reader interprets.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace windtunnel {

// The offset at which `text` stops being well-formed UTF-8 (Unicode 15, table 3-7); its size if all of it is.
size_t Utf8Prefix(std::string_view text);

// Whether UTF-8 `text` has a control character other than a newline or a tab: U+0000 to U+001F, U+007F to
// U+009F.
bool HasControlCharacters(std::string_view text);

// `text` with every control character, newlines included, as an escape: "a\n\x1b[31m".
std::string Printable(std::string_view text);

// `text` as one word of a POSIX shell: in single quotes if it has characters that a shell would interpret.
std::string ShellWord(const std::string& text);

}  // namespace windtunnel
