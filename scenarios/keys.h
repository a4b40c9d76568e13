// The names of all keys of a scenario file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace windtunnel {

// When a block was given as one number or word, the key that the value was probably meant for: "size" for
// "parallel.tensor". Empty: there is none.
std::string_view MainKeyOf(std::string_view block, bool is_number);

// The dotted path of every key, in the order of describe.h: "name", …, "parallel.data.size", ….
std::vector<std::string> ScenarioKeys();

// A dotted path, and how a message quotes it: "'optimizer.lr'", "'precision.param: bf16'". Or what is not
// modelled, which the key would stand for. All are empty if there is no suggestion.
struct KeySuggestion {
  std::string key = {}, words = {};
  std::string not_modelled = {};
};
// Suggests what the unknown key of the block at `path` (empty: the top level) was meant to be. `known` are
// the block's own keys. In this order: a known key one edit away, the key that PyTorch, Megatron or DeepSpeed
// calls so ("optimizer.lr" for "learning_rate", also as an option: "--learning-rate"), a key of the same name
// further in or, if there is only one, in another block ("model.seq_len"), and a similar known key.
KeySuggestion SuggestKey(const std::string& path, const std::string& unknown,
                         const std::vector<std::string>& known);

// What the key says that other programs call `name`, wherever they have it; with `or_same`, else the only key
// of that name. All are empty if it is not known.
KeySuggestion SuggestForOtherName(const std::string& name, bool or_same);

// "batch.micro"; only `key` at the top level, where `path` is empty.
std::string JoinPath(const std::string& path, std::string_view key);

}  // namespace windtunnel
