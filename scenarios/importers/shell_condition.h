// Tests of the shell whose words are known: [ a = b ], [[ -z $A ]], [ 2 -gt 1 ].
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace windtunnel {

// Whether a test holds, as far as it is known.
using Truth = std::optional<bool>;

// Of the words of `[ … ]` or `[[ … ]]` without the brackets, after expansion. Nothing if a word is not known,
// or if it is another test: of files, or of several conditions.
Truth DecideTest(std::vector<std::string> words);

}  // namespace windtunnel
