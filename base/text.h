// Letters and words of texts, in ASCII: other characters stay as they are, or separate words.
#pragma once

#include <string>
#include <string_view>

namespace windtunnel {

std::string LowerCase(std::string_view text);
// A name for files and options: words in lower case, joined by dashes. "AMD EPYC 7R13" is "amd-epyc-7r13".
std::string Slug(std::string_view text);

}  // namespace windtunnel
