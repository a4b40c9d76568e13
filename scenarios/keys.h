// The names of all keys of a scenario file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace windtunnel {

// Of a block that was given as one number or word, the key that the value is likely of: "size" of "parallel.tensor". Empty: none.
std::string_view MainKeyOf(std::string_view block, bool is_number);

// Every key by its dotted path, in the order of describe.h: "name", …, "parallel.data.size", ….
std::vector<std::string> ScenarioKeys();

// A dotted path, and what a message says of it: "'optimizer.lr'", "'precision.param: bf16'". Both are empty where nothing was meant.
struct KeySuggestion {
  std::string key, words;
};
// What the unknown key of the block at `path` (empty: the top level) was meant to be: what PyTorch or Megatron call so ("optimizer.lr" of
// "learning_rate"), a key of the same name further in or in another block ("model.seq_len"), else one of `known`, the block's own keys, that
// is near.
KeySuggestion SuggestKey(const std::string& path, const std::string& unknown,
                         const std::vector<std::string>& known);

// "batch.micro"; at the top level, where `path` is empty, just `key`.
std::string JoinPath(const std::string& path, std::string_view key);

}  // namespace windtunnel
