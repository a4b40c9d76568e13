// Tests of the shell whose words are known: [ a = b ], [[ -z $A ]], [ 2 -gt 1 ], [[ $A == b* ]].
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace windtunnel {

// Whether something holds, as far as it is known.
using Truth = std::optional<bool>;

// What two are together that && ('&') or || ('|') joins.
Truth Combined(Truth first, char by, Truth second);

// A word after expansion, and the pattern (shell_pattern.h) that it is to the right of a comparison.
struct TestWord {
  std::string text, pattern;
};

// Of the words of `[ … ]`, or of `[[ … ]]` between && and ||, without the brackets. Nothing if a word is not
// known, or if it is another test: of files, or of several conditions.
Truth DecideTest(std::vector<TestWord> words);

}  // namespace windtunnel
