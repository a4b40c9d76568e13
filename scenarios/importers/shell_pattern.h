// Patterns of the shell, as in case, [[ a == b* ]] and ${NAME%.*}: '*', '?', sets of characters ([a-z],
// [!0-9]) and, behind a backslash, characters that stand for themselves.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace windtunnel {

// Nothing if that is not known: for extended patterns (@(a|b)), classes ([[:digit:]]) and very long texts.
std::optional<bool> MatchesShellPattern(std::string_view text, std::string_view pattern);

// The pattern that matches `text` alone.
std::string LiteralShellPattern(std::string_view text);

// `text` without what the pattern matches at its end ('%') or its beginning ('#'), as little or as much of it
// as possible. Nothing if that is not known.
std::optional<std::string> WithoutShellPattern(std::string_view text, char where, bool is_longest,
                                               std::string_view pattern);

}  // namespace windtunnel
