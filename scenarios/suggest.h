// Which known word a misspelt one was meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace windtunnel {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal string
// alignment): EditDistance("bathc", "batch") == 1.
int EditDistance(std::string_view a, std::string_view b);

// The word of `known` (not empty) that is nearest to `word`; the first of equally near ones.
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

// The word of `known` that `word` was meant to be, as far as it can be told: the same but for capitals, another spelling of it
// ("bfloat16" of "bf16"), one that begins with it ("gpt2" of "gpt2-124m"), or one that is at most two fifths of its letters away.
// Empty: none.
std::string MeantWord(std::string_view word, const std::vector<std::string>& known);

// "a", "a or b", "a, b or c".
std::string JoinWithOr(const std::vector<std::string>& words);

}  // namespace windtunnel
