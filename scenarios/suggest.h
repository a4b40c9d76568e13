// Suggests the known word that a misspelt one was meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace windtunnel {

// The number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal
// string alignment): EditDistance("bathc", "batch") == 1.
int EditDistance(std::string_view a, std::string_view b);

// The word of `known` (not empty) nearest to `word`; the first one among equals.
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

// Guesses the word of `known` that `word` was meant to be: the same word but for capitals, another spelling
// of it ("bfloat16" for "bf16"), a word that begins with it ("gpt2" for "gpt2-124m"), or one whose edit
// distance is less than two fifths of its letters. Python's words may have a module or class before them, and
// arguments: "ShardingStrategy.FULL_SHARD", "CPUOffload(offload_params=True)". Empty: none.
std::string MeantWord(std::string_view word, const std::vector<std::string>& known);

// What to write for another program's `word` as the value of `key`, where that takes more than a word. Empty:
// not known.
std::string_view AnswerTo(std::string_view key, std::string_view word);

// "a", "a or b", "a, b or c".
std::string JoinWithOr(const std::vector<std::string>& words);

}  // namespace windtunnel
